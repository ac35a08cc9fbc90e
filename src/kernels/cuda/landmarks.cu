// Landmarks of a sequence, the pseudo-inverse between them, and a convolution along the tokens.

#include "kernels/cuda/tile/packed.cuh"
#include "kernels/cuda/tile/partials.cuh"
#include "kernels/cuda/tile/reduce.cuh"
#include "kernels/cuda/tile/tokens.cuh"
#include "kernels/landmarks.h"

namespace fovea::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kConvTile = 128;  // tokens whose share of the taps' gradients one block adds up

// A view [B,H,N,D] of T.
template <class T>
struct Rows {
  T* data;
  std::int64_t sample, head, token, step, heads;
  explicit Rows(const View& x)
      : data(x.ptr<T>()),
        sample(x.stride[0]),
        head(x.stride[1]),
        token(x.stride[2]),
        step(x.stride[3]),
        heads(x.dim[1]) {}
  __device__ __forceinline__ T* at(std::int64_t b, std::int64_t h, std::int64_t n) const {
    return data + b * sample + h * head + n * token;
  }
  // kWidth neighbours of a row, from unit `unit` on.
  template <int kWidth>
  __device__ __forceinline__ void load(float (&x)[kWidth], const T* row, std::int64_t unit) const {
    if constexpr (kWidth == 1) {
      x[0] = to_float(row[unit * step]);
    } else {
      Packed<T, kWidth> in;
      in.load(row + unit * kWidth);
      in.unpack(x);
    }
  }
  template <int kWidth>
  __device__ __forceinline__ void store(T* row, std::int64_t unit, const float (&x)[kWidth]) const {
    if constexpr (kWidth == 1)
      row[unit * step] = from_float<T>(x[0]);
    else
      store_packed(row + unit * kWidth, x);
  }
};

// Whether rows can be read eight values at a time.
bool packs(const View& x) {
  return is_packable(x, x.dim[3]) && x.stride[3] == 1 && x.stride[0] % kVector == 0 &&
         x.stride[1] % kVector == 0 && x.stride[2] % kVector == 0;
}

// A block a sample. Reads the marks twice. A token that ends its segment says where the next
// begins.
__global__ void __launch_bounds__(kThreads)
    landmark_cut_kernel(std::int32_t* begin, std::int32_t* size, std::uint8_t* present,
                        std::uint8_t* single, ValidTokens valid, std::int64_t tokens,
                        std::int64_t m) {
  __shared__ int counts[kThreads / kWarp];
  __shared__ std::int64_t end;
  const std::int64_t b = blockIdx.x;
  std::int32_t* const starts = begin + b * (m + 1);
  int own = 0;
  for (std::int64_t j = threadIdx.x; j < tokens; j += kThreads)
    own += valid.of(b, j) ? 1 : 0;
  const std::int64_t n = block_sum<kThreads>(own, counts);
  const bool few = n <= m;
  const std::int64_t shorter = few ? n : m - n % m, each = few ? 1 : n / m;
  const auto segment = [&](std::int64_t rank) {
    if (rank < shorter * each) return rank / each;
    return shorter + (rank - shorter * each) / (each + 1);
  };
  if (threadIdx.x == 0) {
    starts[0] = 0;
    starts[m] = static_cast<std::int32_t>(tokens);
    single[b] = few ? 1 : 0;
    end = 0;
  }
  for (std::int64_t s = threadIdx.x; s < m; s += kThreads) {
    const std::int64_t count = s < shorter ? each : few ? 0 : each + 1;
    size[b * m + s] = static_cast<std::int32_t>(count);
    present[b * m + s] = count > 0 ? 1 : 0;
  }
  std::int64_t before = 0;  // valid tokens of the tiles before
  const int lane = static_cast<int>(threadIdx.x) % kWarp,
            warp = static_cast<int>(threadIdx.x) / kWarp;
  for (std::int64_t tile = 0; tile < tokens; tile += kThreads) {
    const std::int64_t j = tile + threadIdx.x;
    const bool real = j < tokens && valid.of(b, j);
    const unsigned votes = __ballot_sync(~0u, real);
    if (lane == 0) counts[warp] = __popc(votes);
    __syncthreads();
    std::int64_t rank = before + __popc(votes & ((1u << lane) - 1));
    for (int w = 0; w < kThreads / kWarp; ++w) {
      if (w < warp) rank += counts[w];
      before += counts[w];
    }
    if (real) {
      const std::int64_t s = segment(rank);
      const bool ends = rank + 1 == n || segment(rank + 1) != s;
      if (ends && s + 1 < m) starts[s + 1] = static_cast<std::int32_t>(j + 1);
      if (rank + 1 == n) end = j + 1;
    }
    __syncthreads();
  }
  // Segments without tokens stand behind the last one.
  for (std::int64_t s = n + 1 + threadIdx.x; few && s < m; s += kThreads)
    starts[s] = static_cast<std::int32_t>(end);
}

// A block a segment of a head: groups of threads share its rows, then are added in order. Reads x
// once.
template <int kWidth, class T>
__global__ void __launch_bounds__(kThreads)
    segment_mean_kernel(Rows<T> out, Rows<const T> x, const std::int32_t* begin,
                        const std::int32_t* size, ValidTokens valid, std::int64_t m,
                        std::int64_t units) {
  __shared__ float sums[kThreads * kWidth];
  const std::int64_t head = quotient(blockIdx.x, m), s = blockIdx.x - head * m;
  const std::int64_t b = quotient(head, out.heads), h = head - b * out.heads;
  const std::int64_t first = begin[b * (m + 1) + s], last = begin[b * (m + 1) + s + 1];
  const std::int64_t count = size[b * m + s], from = h * x.heads / out.heads;
  const std::int64_t across = units < kThreads ? units : kThreads, groups = kThreads / across;
  const std::int64_t group = threadIdx.x / across, place = threadIdx.x - group * across;
  for (std::int64_t start = 0; start < units; start += across) {
    const std::int64_t unit = start + place;
    const bool works = group < groups && unit < units;
    float sum[kWidth] = {};
    for (std::int64_t j = first + group; works && j < last; j += groups) {
      if (!valid.of(b, j)) continue;
      float v[kWidth];
      x.load(v, x.at(b, from, j), unit);
#pragma unroll
      for (int i = 0; i < kWidth; ++i)
        sum[i] += v[i];
    }
#pragma unroll
    for (int i = 0; i < kWidth; ++i)
      sums[threadIdx.x * kWidth + i] = sum[i];
    __syncthreads();
    if (works && group == 0) {
      for (std::int64_t g = 1; g < groups; ++g) {
#pragma unroll
        for (int i = 0; i < kWidth; ++i)
          sum[i] += sums[(g * across + place) * kWidth + i];
      }
#pragma unroll
      for (int i = 0; i < kWidth; ++i)
        sum[i] = count > 0 ? sum[i] / static_cast<float>(count) : 0.0f;
      out.store(out.at(b, h, s), unit, sum);
    }
    __syncthreads();
  }
}

// A unit of a token a thread: its segment by bisection. Writes dx once; the means' gradients are
// small.
template <int kWidth, class T>
__global__ void __launch_bounds__(kThreads)
    segment_mean_backward_kernel(Rows<T> dx, Rows<const T> dout, const std::int32_t* begin,
                                 const std::int32_t* size, ValidTokens valid, std::int64_t m,
                                 std::int64_t tokens, std::int64_t units, std::int64_t n) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= n) return;
  const std::int64_t row = quotient(i, units), unit = i - row * units;
  const std::int64_t token = quotient(row, dx.heads), h = row - token * dx.heads;
  const std::int64_t b = quotient(token, tokens), j = token - b * tokens;
  float sum[kWidth] = {};
  if (valid.of(b, j)) {
    const std::int32_t* const starts = begin + b * (m + 1);
    std::int64_t low = 0, high = m;  // starts[low] <= j < starts[high]
    while (high - low > 1) {
      const std::int64_t middle = (low + high) / 2;
      (starts[middle] <= j ? low : high) = middle;
    }
    const std::int64_t group = dout.heads / dx.heads;
    for (std::int64_t g = 0; g < group; ++g) {
      float v[kWidth];
      dout.load(v, dout.at(b, h * group + g, low), unit);
#pragma unroll
      for (int k = 0; k < kWidth; ++k)
        sum[k] += v[k];
    }
    const float count = static_cast<float>(size[b * m + low]);
#pragma unroll
    for (int k = 0; k < kWidth; ++k)
      sum[k] /= count;
  }
  dx.store(dx.at(b, h, j), unit, sum);
}

// Reads and writes each element once.
template <class T>
__global__ void __launch_bounds__(kThreads)
    choose_kernel(T* out, const std::uint8_t* flags, const T* yes, const T* no, std::int64_t each,
                  std::int64_t n) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= n) return;
  const T* const from = flags[quotient(i, each)] != 0 ? yes : no;
  out[i] = from != nullptr ? from[i] : from_float<T>(0.0f);
}

// A block a matrix. Reads it three times.
template <class T>
__global__ void __launch_bounds__(kThreads)
    pinv_start_kernel(T* z, T* norm, const T* a, std::int64_t m) {
  __shared__ float warps[kThreads / kWarp];
  const T* const from = a + blockIdx.x * m * m;
  float column = 0, row = 0;
  for (std::int64_t i = threadIdx.x; i < m; i += kThreads) {
    float down = 0, along = 0;
    for (std::int64_t j = 0; j < m; ++j) {
      down += fabsf(to_float(from[j * m + i]));
      along += fabsf(to_float(from[i * m + j]));
    }
    column = fmaxf(column, down);
    row = fmaxf(row, along);
  }
  const float total = block_max<kThreads>(column, warps) * block_max<kThreads>(row, warps);
  if (threadIdx.x == 0) norm[blockIdx.x] = from_float<T>(total);
  for (std::int64_t e = threadIdx.x; e < m * m; e += kThreads) {
    const std::int64_t i = quotient(e, m), j = e - i * m;
    z[blockIdx.x * m * m + e] = from_float<T>(to_float(from[j * m + i]) / total);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    pinv_start_backward_kernel(T* da, const T* dz, const T* norm, std::int64_t m, std::int64_t n) {
  const std::int64_t e = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (e >= n) return;
  const std::int64_t row = quotient(e, m), j = e - row * m;
  const std::int64_t p = quotient(row, m), i = row - p * m;
  da[e] = from_float<T>(to_float(da[e]) + to_float(dz[(p * m + j) * m + i]) / to_float(norm[p]));
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    identity_minus_kernel(T* out, const T* x, float alpha, std::int64_t m, std::int64_t n) {
  const std::int64_t e = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (e >= n) return;
  const std::int64_t row = quotient(e, m);
  out[e] = from_float<T>((e - row * m == row % m ? alpha : 0.0f) - to_float(x[e]));
}

// Where unit i of [B,H,N,units] stands; tokens inside heads, so that neighbours share their taps.
struct Place {
  std::int64_t b, h, n, unit;
  __device__ __forceinline__ Place(std::int64_t i, std::int64_t heads, std::int64_t tokens,
                                   std::int64_t units) {
    const std::int64_t row = quotient(i, units), head = quotient(row, tokens);
    unit = i - row * units;
    n = row - head * tokens;
    b = quotient(head, heads);
    h = head - b * heads;
  }
};

// A unit of an output a thread. Reads v once from memory, the taps' other reads hit the cache.
template <int kWidth, class T>
__global__ void __launch_bounds__(kThreads)
    token_conv_kernel(Rows<T> out, Rows<const T> o, Rows<const T> v, const T* w, ValidTokens valid,
                      std::int64_t taps, std::int64_t tokens, std::int64_t units, std::int64_t n) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= n) return;
  const Place at(i, out.heads, tokens, units);
  float sum[kWidth];
  o.load(sum, o.at(at.b, at.h, at.n), at.unit);
  const std::int64_t head = at.h * v.heads / out.heads, half = taps / 2;
  for (std::int64_t t = 0; t < taps; ++t) {
    const std::int64_t j = at.n + t - half;
    if (j < 0 || j >= tokens || !valid.of(at.b, at.n) || !valid.of(at.b, j)) continue;
    const float weight = to_float(w[at.h * taps + t]);
    float x[kWidth];
    v.load(x, v.at(at.b, head, j), at.unit);
#pragma unroll
    for (int k = 0; k < kWidth; ++k)
      sum[k] += weight * x[k];
  }
  out.store(out.at(at.b, at.h, at.n), at.unit, sum);
}

// The same for dv: from the outputs that read a token, over the heads of its group.
template <int kWidth, class T>
__global__ void __launch_bounds__(kThreads)
    token_conv_values_kernel(Rows<T> dv, Rows<const T> dout, const T* w, ValidTokens valid,
                             std::int64_t taps, std::int64_t tokens, std::int64_t units,
                             std::int64_t n) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= n) return;
  const Place at(i, dv.heads, tokens, units);
  const std::int64_t group = dout.heads / dv.heads, half = taps / 2;
  float sum[kWidth] = {};
  for (std::int64_t g = 0; g < group; ++g) {
    const std::int64_t h = at.h * group + g;
    for (std::int64_t t = 0; t < taps; ++t) {
      const std::int64_t from = at.n - t + half;
      if (from < 0 || from >= tokens || !valid.of(at.b, at.n) || !valid.of(at.b, from)) continue;
      const float weight = to_float(w[h * taps + t]);
      float x[kWidth];
      dout.load(x, dout.at(at.b, h, from), at.unit);
#pragma unroll
      for (int k = 0; k < kWidth; ++k)
        sum[k] += weight * x[k];
    }
  }
  dv.store(dv.at(at.b, at.h, at.n), at.unit, sum);
}

// A block a tile of tokens of one head, a warp a tap at a time. partial [B, tiles, H, taps].
template <class T>
__global__ void __launch_bounds__(kThreads)
    token_conv_taps_kernel(float* partial, Rows<const T> dout, Rows<const T> v, ValidTokens valid,
                           std::int64_t taps, std::int64_t tokens, std::int64_t width,
                           std::int64_t tiles) {
  const std::int64_t part = quotient(blockIdx.x, dout.heads), h = blockIdx.x - part * dout.heads;
  const std::int64_t b = quotient(part, tiles), first = (part - b * tiles) * kConvTile;
  const std::int64_t end = first + kConvTile < tokens ? first + kConvTile : tokens;
  const std::int64_t head = h * v.heads / dout.heads, half = taps / 2;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (std::int64_t t = threadIdx.x / kWarp; t < taps; t += kThreads / kWarp) {
    float sum = 0;
    for (std::int64_t i = first; i < end; ++i) {
      const std::int64_t j = i + t - half;
      if (j < 0 || j >= tokens || !valid.of(b, i) || !valid.of(b, j)) continue;
      const T* const left = dout.at(b, h, i);
      const T* const right = v.at(b, head, j);
      for (std::int64_t c = lane; c < width; c += kWarp)
        sum += to_float(left[c * dout.step]) * to_float(right[c * v.step]);
    }
    sum = warp_sum(sum);
    if (lane == 0) partial[std::int64_t{blockIdx.x} * taps + t] = sum;
  }
}

}  // namespace

void landmark_cut(StreamRef stream, const View& begin, const View& size, const View& present,
                  const View& single, const View& valid, std::int64_t tokens) {
  if (size.dim[0] == 0) return;
  landmark_cut_kernel<<<static_cast<unsigned>(size.dim[0]), kThreads, 0, stream_of(stream)>>>(
      begin.ptr<std::int32_t>(), size.ptr<std::int32_t>(), present.ptr<std::uint8_t>(),
      single.ptr<std::uint8_t>(), ValidTokens(valid), tokens, size.dim[1]);
  check_launch("landmark_cut");
}

void segment_mean_forward(StreamRef stream, const View& out, const View& x, const View& begin,
                          const View& size, const View& valid) {
  const std::int64_t segments = out.dim[0] * out.dim[1] * out.dim[2], width = out.dim[3];
  if (out.numel() == 0) return;
  for_float(out.dtype, "segment_mean", [&](auto zero) {
    using T = decltype(zero);
    const auto launch = [&](auto kernel, std::int64_t unit) {
      kernel<<<static_cast<unsigned>(segments), kThreads, 0, stream_of(stream)>>>(
          Rows<T>(out), Rows<const T>(x), begin.ptr<const std::int32_t>(),
          size.ptr<const std::int32_t>(), ValidTokens(valid), out.dim[2], width / unit);
    };
    if (packs(out) && packs(x))
      launch(segment_mean_kernel<kVector, T>, kVector);
    else
      launch(segment_mean_kernel<1, T>, 1);
    check_launch("segment_mean");
  });
}

void segment_mean_backward(StreamRef stream, const View& dx, const View& dout, const View& begin,
                           const View& size, const View& valid) {
  const std::int64_t n = dx.numel(), width = dx.dim[3];
  if (n == 0) return;
  for_float(dx.dtype, "segment_mean_backward", [&](auto zero) {
    using T = decltype(zero);
    const auto launch = [&](auto kernel, std::int64_t unit) {
      kernel<<<blocks_for(n / unit, kThreads), kThreads, 0, stream_of(stream)>>>(
          Rows<T>(dx), Rows<const T>(dout), begin.ptr<const std::int32_t>(),
          size.ptr<const std::int32_t>(), ValidTokens(valid), dout.dim[2], dx.dim[2], width / unit,
          n / unit);
    };
    if (packs(dx) && packs(dout))
      launch(segment_mean_backward_kernel<kVector, T>, kVector);
    else
      launch(segment_mean_backward_kernel<1, T>, 1);
    check_launch("segment_mean_backward");
  });
}

void choose_samples(StreamRef stream, const View& out, const View& flags, const View& yes,
                    const View& no) {
  const std::int64_t n = out.numel();
  if (n == 0) return;
  for_float(out.dtype, "choose_samples", [&](auto zero) {
    using T = decltype(zero);
    choose_kernel<<<blocks_for(n, kThreads), kThreads, 0, stream_of(stream)>>>(
        out.ptr<T>(), flags.ptr<const std::uint8_t>(), yes.ptr<const T>(), no.ptr<const T>(),
        n / out.dim[0], n);
    check_launch("choose_samples");
  });
}

void pinv_start(StreamRef stream, const View& z, const View& norm, const View& a) {
  if (a.numel() == 0) return;
  for_float(a.dtype, "pinv_start", [&](auto zero) {
    using T = decltype(zero);
    pinv_start_kernel<<<static_cast<unsigned>(norm.numel()), kThreads, 0, stream_of(stream)>>>(
        z.ptr<T>(), norm.ptr<T>(), a.ptr<const T>(), a.cols());
    check_launch("pinv_start");
  });
}

void pinv_start_backward(StreamRef stream, const View& da, const View& dz, const View& norm) {
  const std::int64_t n = da.numel();
  if (n == 0) return;
  for_float(da.dtype, "pinv_start_backward", [&](auto zero) {
    using T = decltype(zero);
    pinv_start_backward_kernel<<<blocks_for(n, kThreads), kThreads, 0, stream_of(stream)>>>(
        da.ptr<T>(), dz.ptr<const T>(), norm.ptr<const T>(), da.cols(), n);
    check_launch("pinv_start_backward");
  });
}

void identity_minus(StreamRef stream, const View& out, const View& x, double alpha) {
  const std::int64_t n = x.numel();
  if (n == 0) return;
  for_float(x.dtype, "identity_minus", [&](auto zero) {
    using T = decltype(zero);
    identity_minus_kernel<<<blocks_for(n, kThreads), kThreads, 0, stream_of(stream)>>>(
        out.ptr<T>(), x.ptr<const T>(), static_cast<float>(alpha), x.cols(), n);
    check_launch("identity_minus");
  });
}

void token_conv_forward(StreamRef stream, const View& out, const View& o, const View& v,
                        const View& w, const View& valid) {
  const std::int64_t n = out.numel(), width = out.dim[3];
  if (n == 0) return;
  for_float(out.dtype, "token_conv", [&](auto zero) {
    using T = decltype(zero);
    const auto launch = [&](auto kernel, std::int64_t unit) {
      kernel<<<blocks_for(n / unit, kThreads), kThreads, 0, stream_of(stream)>>>(
          Rows<T>(out), Rows<const T>(o), Rows<const T>(v), w.ptr<const T>(), ValidTokens(valid),
          w.dim[1], out.dim[2], width / unit, n / unit);
    };
    if (packs(out) && packs(o) && packs(v))
      launch(token_conv_kernel<kVector, T>, kVector);
    else
      launch(token_conv_kernel<1, T>, 1);
    check_launch("token_conv");
  });
}

void token_conv_backward(StreamRef stream, const View& dv, const View& dw, const View& dout,
                         const View& v, const View& w, const View& valid) {
  const std::int64_t n = v.numel(), width = v.dim[3], tokens = v.dim[2], taps = w.dim[1];
  if (n == 0) return;
  for_float(v.dtype, "token_conv_backward", [&](auto zero) {
    using T = decltype(zero);
    if (dv) {
      const auto launch = [&](auto kernel, std::int64_t unit) {
        kernel<<<blocks_for(n / unit, kThreads), kThreads, 0, stream_of(stream)>>>(
            Rows<T>(dv), Rows<const T>(dout), w.ptr<const T>(), ValidTokens(valid), taps, tokens,
            width / unit, n / unit);
      };
      if (packs(dv) && packs(dout))
        launch(token_conv_values_kernel<kVector, T>, kVector);
      else
        launch(token_conv_values_kernel<1, T>, 1);
      check_launch("token_conv_backward");
    }
    if (!dw) return;
    const std::int64_t tiles = (tokens + kConvTile - 1) / kConvTile, parts = v.dim[0] * tiles,
                       cols = dw.numel();
    auto* const partial = static_cast<float*>(
        scratch(stream, static_cast<std::size_t>(parts * cols) * sizeof(float), "token_conv"));
    token_conv_taps_kernel<<<static_cast<unsigned>(parts * dout.dim[1]), kThreads, 0,
                             stream_of(stream)>>>(partial, Rows<const T>(dout), Rows<const T>(v),
                                                  ValidTokens(valid), taps, tokens, width, tiles);
    check_launch("token_conv_backward");
    add_partials(stream, "token_conv_backward", {{dw.ptr<float>()}}, 1, partial, parts, cols);
  });
}

}  // namespace fovea::cuda
