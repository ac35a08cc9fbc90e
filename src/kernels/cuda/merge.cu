// One softmax out of several, by their log-sum-exp.

#include "kernels/cuda/tile/packed.cuh"
#include "kernels/cuda/tile/reduce.cuh"
#include "kernels/merge.h"

namespace fovea::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kFew =
    4;  // parts for which there are kernels of their own: what a thread keeps a part

// A few lanes share a row: eight with 16-byte accesses, else a warp.
template <int kWidth>
constexpr int kRowLanes = kWidth == 1 ? kWarp : 8;

template <class T, int kMost>
struct Parts {
  int count;
  T* o[kMost];
  float* lse[kMost];

  explicit Parts(const MergeParts& parts) : count(parts.count), o{}, lse{} {
    for (int p = 0; p < count; ++p) {
      o[p] = parts.o[p].ptr<T>();
      lse[p] = parts.lse[p].ptr<float>();
    }
  }
};

struct Shape4 {
  std::int64_t rows, tokens, heads, width;  // rows (b, n, h)
};

// Rows of v [B,H,N,*], taken by tokens that see nothing; strides in elements.
template <class T>
struct Own {
  T* v;
  std::int64_t sample, head, token, step;
  const std::uint8_t* valid;
  std::int64_t valid_sample, valid_token;

  Own(const View& view, const View& marks)
      : v(view.ptr<T>()),
        sample(view.stride[0]),
        head(view.stride[1]),
        token(view.stride[2]),
        step(view.stride[3]),
        valid(marks.ptr<std::uint8_t>()),
        valid_sample(marks.stride[0]),
        valid_token(marks.stride[1]) {}
};

// Where the row of a thread lies. Lanes of a row past the end stay, for the shuffles.
template <int kLanes>
struct Row {
  std::int64_t row, b, n, h;
  int lane;
  bool real;
  __device__ __forceinline__ explicit Row(const Shape4& s) {
    row = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) / kLanes;
    lane = static_cast<int>(threadIdx.x) % kLanes;
    real = row < s.rows;
    if (!real) row = 0;
    const std::int64_t at = quotient(row, s.heads);
    h = row - at * s.heads;
    b = quotient(at, s.tokens);
    n = at - b * s.tokens;
  }
  __device__ __forceinline__ std::int64_t lse(const Shape4& s) const {
    return (b * s.heads + h) * s.tokens + n;
  }
  template <class T>
  __device__ __forceinline__ bool takes(const Own<T>& own) const {
    return own.v != nullptr &&
           (own.valid == nullptr || own.valid[b * own.valid_sample + n * own.valid_token] != 0);
  }
  template <class T>
  __device__ __forceinline__ T* own(const Own<T>& of) const {
    return of.v + b * of.sample + h * of.head + n * of.token;
  }
};

// Reads every part once, writes once.
template <int kWidth, int kMost, class T>
__global__ void __launch_bounds__(kThreads)
    merge_kernel(T* o, float* lse, const Parts<T, kMost> parts, const Own<T> own, float own_lse,
                 const Shape4 s) {
  constexpr int kLanes = kRowLanes<kWidth>;
  const Row<kLanes> row(s);
  if (!row.real) return;
  const std::int64_t at_lse = row.lse(s), at = row.row * s.width;
  float top = -INFINITY, sum = 0, weights[kMost];
#pragma unroll
  for (int p = 0; p < kMost; ++p) {
    if (p >= parts.count) continue;
    weights[p] = parts.lse[p][at_lse];
    top = fmaxf(top, weights[p]);
  }
  if (top == -INFINITY) {
    const bool takes = row.takes(own);
    if (row.lane == 0) lse[at_lse] = takes ? own_lse : -INFINITY;
    for (std::int64_t c = row.lane; c < s.width; c += kLanes)
      o[at + c] = takes ? row.own(own)[c * own.step] : from_float<T>(0.0f);
    return;
  }
#pragma unroll
  for (int p = 0; p < kMost; ++p) {
    if (p >= parts.count) continue;
    weights[p] = expf(weights[p] - top);
    sum += weights[p];
  }
  if (row.lane == 0) lse[at_lse] = top + logf(sum);
  const float share = 1 / sum;
  for (std::int64_t c = row.lane * kWidth; c < s.width; c += kLanes * kWidth) {
    float value[kWidth] = {};
#pragma unroll
    for (int p = 0; p < kMost; ++p) {
      if (p >= parts.count) continue;
      Packed<T, kWidth> in;
      in.load(parts.o[p] + at + c);
      float x[kWidth];
      in.unpack(x);
#pragma unroll
      for (int i = 0; i < kWidth; ++i)
        value[i] += weights[p] * share * x[i];
    }
    store_packed(o + at + c, value);
  }
}

// Reads the parts once and dout twice, writes the parts' gradients once.
template <int kWidth, int kMost, class T>
__global__ void __launch_bounds__(kThreads)
    merge_backward_kernel(const Parts<T, kMost> into, const Own<T> dv, const T* dout,
                          const float* dlse, const float* lse, const Parts<T, kMost> parts,
                          const Own<T> own, const Shape4 s) {
  constexpr int kLanes = kRowLanes<kWidth>;
  const Row<kLanes> row(s);
  const std::int64_t at_lse = row.lse(s), at = row.row * s.width;
  const float total = lse[at_lse];
  float weights[kMost], along[kMost], mean = 0;
  bool seen = false;
  const auto gradient = [&](std::int64_t c, float(&d)[kWidth]) {
    if (dout == nullptr) return;
    Packed<T, kWidth> in;
    in.load(dout + at + c);
    in.unpack(d);
  };
#pragma unroll
  for (int p = 0; p < kMost; ++p) {
    weights[p] = along[p] = 0;
    if (p >= parts.count) continue;
    const float part = parts.lse[p][at_lse];
    seen = seen || part != -INFINITY;
    weights[p] = part == -INFINITY ? 0.0f : expf(part - total);
  }
  for (std::int64_t c = row.lane * kWidth; c < s.width; c += kLanes * kWidth) {
    float d[kWidth] = {};
    gradient(c, d);
    // Loads that wait for nothing, a few at once.
#pragma unroll
    for (int few = 0; few < kMost; few += kFew) {
      if (few >= parts.count) continue;
      Packed<T, kWidth> in[kFew];
#pragma unroll
      for (int p = 0; p < kFew; ++p) {
        if (few + p < parts.count) in[p].load(parts.o[few + p] + at + c);
      }
#pragma unroll
      for (int p = 0; p < kFew; ++p) {
        if (few + p >= parts.count || weights[few + p] == 0) continue;
        float x[kWidth];
        in[p].unpack(x);
#pragma unroll
        for (int i = 0; i < kWidth; ++i)
          along[few + p] += d[i] * x[i];
      }
    }
  }
#pragma unroll
  for (int p = 0; p < kMost; ++p) {
    if (p >= parts.count) continue;
    along[p] = warp_sum<kLanes>(along[p]);
    mean += weights[p] * along[p];
  }
  if (!row.real) return;
  const float by_lse = dlse != nullptr ? dlse[at_lse] : 0.0f;
  if (row.lane == 0) {
#pragma unroll
    for (int p = 0; p < kMost; ++p) {
      if (p >= parts.count) continue;
      into.lse[p][at_lse] = weights[p] == 0 ? 0.0f : weights[p] * (along[p] - mean + by_lse);
    }
  }
  for (std::int64_t c = row.lane * kWidth; c < s.width; c += kLanes * kWidth) {
    float d[kWidth] = {};
    gradient(c, d);
#pragma unroll
    for (int p = 0; p < kMost; ++p) {
      if (p >= parts.count) continue;
      float x[kWidth];
#pragma unroll
      for (int i = 0; i < kWidth; ++i)
        x[i] = weights[p] * d[i];
      store_packed(into.o[p] + at + c, x);
    }
  }
  if (dv.v == nullptr) return;
  const bool takes = !seen && dout != nullptr && row.takes(own);
  for (std::int64_t c = row.lane; c < s.width; c += kLanes)
    row.own(dv)[c * dv.step] = takes ? dout[at + c] : from_float<T>(0.0f);
}

// Reads every part once, writes once.
template <int kWidth, class T>
__global__ void __launch_bounds__(kThreads)
    sum_parts_kernel(T* out, const T* x, int parts, std::int64_t n) {
  const std::int64_t at = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) * kWidth;
  if (at >= n) return;
  float sum[kWidth] = {};
  for (int first = 0; first < parts; first += kFew) {
    Packed<T, kWidth> in[kFew];
#pragma unroll
    for (int p = 0; p < kFew; ++p) {
      if (first + p < parts) in[p].load(x + (first + p) * n + at);
    }
#pragma unroll
    for (int p = 0; p < kFew; ++p) {
      if (first + p >= parts) continue;
      float more[kWidth];
      in[p].unpack(more);
#pragma unroll
      for (int i = 0; i < kWidth; ++i)
        sum[i] += more[i];
    }
  }
  store_packed(out + at, sum);
}

bool packs(const MergeParts& parts, std::int64_t width) {
  bool all = true;
  for (int p = 0; p < parts.count; ++p)
    all = all && is_packable(parts.o[p], width);
  return all;
}

Shape4 shape_of(const View& o) {
  return {o.rows(), o.dim[1], o.dim[2], o.dim[3]};
}

}  // namespace

void merge_forward(StreamRef stream, const View& o, const View& lse, const MergeParts& parts,
                   const MergeAlone& alone) {
  const Shape4 s = shape_of(o);
  if (o.numel() == 0) return;
  const bool packed = packs(parts, s.width) && is_packable(o, s.width);
  for_float(o.dtype, "merge", [&](auto zero) {
    using T = decltype(zero);
    const auto launch = [&](auto kernel, int lanes, auto passed) {
      kernel<<<blocks_for(s.rows * lanes, kThreads), kThreads, 0, stream_of(stream)>>>(
          o.ptr<T>(), lse.ptr<float>(), passed, Own<T>(alone.v, alone.valid),
          static_cast<float>(alone.lse), s);
    };
    if (packed && parts.count <= kFew)
      launch(merge_kernel<kVector, kFew, T>, kRowLanes<kVector>, Parts<T, kFew>(parts));
    else if (packed)
      launch(merge_kernel<kVector, kMostMerged, T>, kRowLanes<kVector>,
             Parts<T, kMostMerged>(parts));
    else
      launch(merge_kernel<1, kMostMerged, T>, kRowLanes<1>, Parts<T, kMostMerged>(parts));
    check_launch("merge");
  });
}

void merge_backward(StreamRef stream, const MergeParts& into, const View& dv, const View& dout,
                    const View& dlse, const View& lse, const MergeParts& parts,
                    const MergeAlone& alone) {
  const Shape4 s = shape_of(parts.o[0]);
  if (parts.o[0].numel() == 0) return;
  const bool packed = packs(parts, s.width) && packs(into, s.width) && is_packable(dout, s.width);
  for_float(parts.o[0].dtype, "merge_backward", [&](auto zero) {
    using T = decltype(zero);
    const auto launch = [&](auto kernel, int lanes, auto to, auto passed) {
      kernel<<<blocks_for(s.rows * lanes, kThreads), kThreads, 0, stream_of(stream)>>>(
          to, Own<T>(dv, alone.valid), dout.ptr<const T>(), dlse.ptr<const float>(),
          lse.ptr<const float>(), passed, Own<T>(alone.v, alone.valid), s);
    };
    using Few = Parts<T, kFew>;
    using All = Parts<T, kMostMerged>;
    if (packed && parts.count <= kFew)
      launch(merge_backward_kernel<kVector, kFew, T>, kRowLanes<kVector>, Few(into), Few(parts));
    else if (packed)
      launch(merge_backward_kernel<kVector, kMostMerged, T>, kRowLanes<kVector>, All(into),
             All(parts));
    else
      launch(merge_backward_kernel<1, kMostMerged, T>, kRowLanes<1>, All(into), All(parts));
    check_launch("merge_backward");
  });
}

void sum_parts(StreamRef stream, const View& out, const View& x) {
  const std::int64_t n = x.dim[1];
  if (n == 0) return;
  const auto parts = static_cast<int>(x.dim[0]);
  for_float(x.dtype, "sum_parts", [&](auto zero) {
    using T = decltype(zero);
    const auto launch = [&](auto kernel, int width) {
      kernel<<<blocks_for(n, std::int64_t{kThreads} * width), kThreads, 0, stream_of(stream)>>>(
          out.ptr<T>(), x.ptr<const T>(), parts, n);
      check_launch("sum_parts");
    };
    if (is_packable(x, n) && is_aligned(out.data))
      launch(sum_parts_kernel<kVector, T>, kVector);
    else
      launch(sum_parts_kernel<1, T>, 1);
  });
}

}  // namespace fovea::cuda
