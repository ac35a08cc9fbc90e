// Element-wise nonlinearities, softmax and dropout.

#include "kernels/activation.h"
#include "kernels/cuda/tile/gelu.cuh"
#include "kernels/cuda/tile/map.cuh"
#include "kernels/cuda/tile/team.cuh"

namespace fovea::cuda {

namespace {

constexpr int kThreads = 256;

// f32 results are compared with the CPU's to 1e-5; 16-bit ones hide the error of the fast forms.
template <class T>
__device__ __forceinline__ float exp_of(float x) {
  if constexpr (sizeof(T) == 4) return expf(x);
  return __expf(x);
}
template <class T>
__device__ __forceinline__ float sigmoid(float x) {
  if constexpr (sizeof(T) == 4) return 1.0f / (1.0f + expf(-x));
  return __fdividef(1.0f, 1.0f + __expf(-x));
}

template <class T>
struct Gelu {
  __device__ float operator()(float x) const { return gelu<T>(x); }
};
template <class T>
struct GeluSlope {
  __device__ float operator()(float dy, float x) const { return dy * gelu_slope<T>(x); }
};

// Where pack `i` of [rows, packs a row] lies: in a tensor as wide, and in one twice as wide.
struct Place {
  std::int64_t narrow, wide;
  __device__ Place(std::int64_t i, std::int64_t packs, int width) {
    const std::int64_t row = quotient(i, packs);
    narrow = i * width;
    wide = (row * packs + i) * width;
  }
};

// Reads x once, writes y once; one pack a thread.
template <int kWidth, class T>
__global__ void __launch_bounds__(kThreads)
    swiglu_kernel(T* __restrict__ y, const T* __restrict__ x, std::int64_t n, std::int64_t packs) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= n) return;
  const Place at(i, packs, kWidth);
  Packed<T, kWidth> a, b;
  a.load(x + at.wide);
  b.load(x + at.wide + packs * kWidth);
  float gate[kWidth], up[kWidth];
  a.unpack(gate);
  b.unpack(up);
#pragma unroll
  for (int k = 0; k < kWidth; ++k)
    gate[k] = gate[k] * sigmoid<T>(gate[k]) * up[k];
  store_packed(y + at.narrow, gate);
}

// Reads x and dy once, writes dx once.
template <int kWidth, class T>
__global__ void __launch_bounds__(kThreads)
    swiglu_backward_kernel(T* __restrict__ dx, const T* __restrict__ dy, const T* __restrict__ x,
                           std::int64_t n, std::int64_t packs) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= n) return;
  const Place at(i, packs, kWidth);
  Packed<T, kWidth> a, b, c;
  a.load(x + at.wide);
  b.load(x + at.wide + packs * kWidth);
  c.load(dy + at.narrow);
  float gate[kWidth], up[kWidth], d[kWidth];
  a.unpack(gate);
  b.unpack(up);
  c.unpack(d);
#pragma unroll
  for (int k = 0; k < kWidth; ++k) {
    const float g = gate[k], s = sigmoid<T>(g);
    gate[k] = d[k] * up[k] * s * (1.0f + g * (1.0f - s));
    up[k] = d[k] * g * s;
  }
  store_packed(dx + at.wide, gate);
  store_packed(dx + at.wide + packs * kWidth, up);
}

// A team a row. Reads x three times, of which two mostly hit the caches; writes y once.
template <int kTeam, class T>
__global__ void __launch_bounds__(kTeamBlock)
    softmax_kernel(T* y, const T* x, std::int64_t rows, std::int64_t cols) {
  __shared__ float warps[kTeamBlock / kWarp];
  const Team<kTeam> team(warps);
  if (team.row >= rows) return;
  const T* const from = x + team.row * cols;
  float top = -INFINITY, total = 0;
  for (std::int64_t j = team.lane; j < cols; j += kTeam)
    top = fmaxf(top, to_float(from[j]));
  top = team.max(top);
  for (std::int64_t j = team.lane; j < cols; j += kTeam)
    total += exp_of<T>(to_float(from[j]) - top);
  total = team.sum(total);
  for (std::int64_t j = team.lane; j < cols; j += kTeam)
    y[team.row * cols + j] = from_float<T>(exp_of<T>(to_float(from[j]) - top) / total);
}

// A team a row. Reads dy and y twice, writes dx once.
template <int kTeam, class T>
__global__ void __launch_bounds__(kTeamBlock)
    softmax_backward_kernel(T* dx, const T* dy, const T* y, std::int64_t rows, std::int64_t cols) {
  __shared__ float warps[kTeamBlock / kWarp];
  const Team<kTeam> team(warps);
  if (team.row >= rows) return;
  const std::int64_t at = team.row * cols;
  float dot = 0;
  for (std::int64_t j = team.lane; j < cols; j += kTeam)
    dot += to_float(dy[at + j]) * to_float(y[at + j]);
  dot = team.sum(dot);
  for (std::int64_t j = team.lane; j < cols; j += kTeam)
    dx[at + j] = from_float<T>(to_float(y[at + j]) * (to_float(dy[at + j]) - dot));
}

struct Drop {
  Key key;
  std::uint32_t threshold;  // of 24 bits
  float kept;               // the factor of what stays
  std::int64_t per_sample;
};

// Bits of the kGroup elements from `element` on: two Philox calls, or three where the elements do
// not start at a multiple of four.
constexpr int kGroup = 8;
__device__ __forceinline__ void draw(std::uint32_t (&to)[kGroup], std::uint64_t key,
                                     std::uint64_t element, std::uint64_t step) {
  std::uint32_t words[kGroup + 4];
  const int shift = static_cast<int>(element & 3);
#pragma unroll
  for (int block = 0; block < kGroup / 4 + 1; ++block) {
    if (block == kGroup / 4 && shift == 0) break;
    const Philox4 four = philox4x32(key, (element >> 2) + static_cast<unsigned>(block), step);
#pragma unroll
    for (int k = 0; k < 4; ++k)
      words[4 * block + k] = four.v[k];
  }
#pragma unroll
  for (int s = 0; s < 4; ++s) {  // constant indices keep the words in registers
    if (shift != s) continue;
#pragma unroll
    for (int k = 0; k < kGroup; ++k)
      to[k] = words[k + s];
  }
}

// Reads x once, writes y once; eight elements a thread.
template <bool kPacked, class T>
__global__ void __launch_bounds__(kThreads)
    dropout_kernel(T* y, const T* x, std::int64_t n, const Drop drop) {
  const std::int64_t i = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) * kGroup;
  if (i >= n) return;
  const StepState* const at = drop.key.at;
  const std::int64_t first = at ? at->first_sample * drop.per_sample : 0;
  std::uint32_t bits[kGroup];
  draw(bits, mix64(drop.key.seed, drop.key.path_hash), static_cast<std::uint64_t>(first + i),
       at ? static_cast<std::uint64_t>(at->step) : 0);
  const auto value = [&](float from, int k) {
    return (bits[k] >> 8) < drop.threshold ? 0.0f : from * drop.kept;
  };
  if (kPacked && i + kGroup <= n) {
    float v[kGroup];
    load8(v, x + i);
#pragma unroll
    for (int k = 0; k < kGroup; ++k)
      v[k] = value(v[k], k);
    store8(y + i, v);
    return;
  }
#pragma unroll
  for (int k = 0; k < kGroup; ++k) {
    if (i + k < n) y[i + k] = from_float<T>(value(to_float(x[i + k]), k));
  }
}

}  // namespace

void gelu_forward(StreamRef stream, const View& y, const View& x) {
  for_float(x.dtype, "gelu", [&](auto zero) {
    using T = decltype(zero);
    map(stream, "gelu", x.numel(), Gelu<T>{}, y.ptr<T>(), x.ptr<T>());
  });
}

void gelu_backward(StreamRef stream, const View& dx, const View& dy, const View& x) {
  for_float(x.dtype, "gelu_backward", [&](auto zero) {
    using T = decltype(zero);
    map(stream, "gelu_backward", x.numel(), GeluSlope<T>{}, dx.ptr<T>(), dy.ptr<T>(), x.ptr<T>());
  });
}

void swiglu_forward(StreamRef stream, const View& y, const View& x) {
  const std::int64_t n = y.numel(), cols = y.cols();
  if (n == 0) return;
  for_float(x.dtype, "swiglu", [&](auto zero) {
    using T = decltype(zero);
    if (is_packable(x, cols) && is_packable(y, cols)) {
      swiglu_kernel<kVector, T>
          <<<blocks_for(n / kVector, kThreads), kThreads, 0, stream_of(stream)>>>(
              y.ptr<T>(), x.ptr<T>(), n / kVector, cols / kVector);
    } else {
      swiglu_kernel<1, T><<<blocks_for(n, kThreads), kThreads, 0, stream_of(stream)>>>(
          y.ptr<T>(), x.ptr<T>(), n, cols);
    }
    check_launch("swiglu");
  });
}

void swiglu_backward(StreamRef stream, const View& dx, const View& dy, const View& x) {
  const std::int64_t n = dy.numel(), cols = dy.cols();
  if (n == 0) return;
  for_float(x.dtype, "swiglu_backward", [&](auto zero) {
    using T = decltype(zero);
    if (is_packable(x, cols) && is_packable(dx, cols) && is_packable(dy, cols)) {
      swiglu_backward_kernel<kVector, T>
          <<<blocks_for(n / kVector, kThreads), kThreads, 0, stream_of(stream)>>>(
              dx.ptr<T>(), dy.ptr<T>(), x.ptr<T>(), n / kVector, cols / kVector);
    } else {
      swiglu_backward_kernel<1, T><<<blocks_for(n, kThreads), kThreads, 0, stream_of(stream)>>>(
          dx.ptr<T>(), dy.ptr<T>(), x.ptr<T>(), n, cols);
    }
    check_launch("swiglu_backward");
  });
}

void softmax_forward(StreamRef stream, const View& y, const View& x) {
  const std::int64_t rows = x.rows(), cols = x.cols();
  if (rows == 0 || cols == 0) return;
  for_float(x.dtype, "softmax", [&](auto zero) {
    using T = decltype(zero);
    for_team(rows, cols, [&](auto team, unsigned blocks) {
      softmax_kernel<decltype(team)::value, T>
          <<<blocks, kTeamBlock, 0, stream_of(stream)>>>(y.ptr<T>(), x.ptr<T>(), rows, cols);
      check_launch("softmax");
    });
  });
}

void softmax_backward(StreamRef stream, const View& dx, const View& dy, const View& y) {
  const std::int64_t rows = y.rows(), cols = y.cols();
  if (rows == 0 || cols == 0) return;
  for_float(y.dtype, "softmax_backward", [&](auto zero) {
    using T = decltype(zero);
    for_team(rows, cols, [&](auto team, unsigned blocks) {
      softmax_backward_kernel<decltype(team)::value, T>
          <<<blocks, kTeamBlock, 0, stream_of(stream)>>>(dx.ptr<T>(), dy.ptr<T>(), y.ptr<T>(), rows,
                                                         cols);
      check_launch("softmax_backward");
    });
  });
}

void dropout_forward(StreamRef stream, const View& y, const View& x, double p, const Key& key) {
  const std::int64_t n = x.numel();
  if (n == 0) return;
  const Drop drop{key, static_cast<std::uint32_t>(p * 16777216.0 + 0.5),
                  static_cast<float>(1 / (1 - p)), n / (x.rank == 0 ? 1 : x.dim[0])};
  for_float(x.dtype, "dropout", [&](auto zero) {
    using T = decltype(zero);
    const unsigned blocks = blocks_for(n, std::int64_t{kThreads} * kGroup);
    if (is_aligned(x.data) && is_aligned(y.data)) {
      dropout_kernel<true, T>
          <<<blocks, kThreads, 0, stream_of(stream)>>>(y.ptr<T>(), x.ptr<T>(), n, drop);
    } else {
      dropout_kernel<false, T>
          <<<blocks, kThreads, 0, stream_of(stream)>>>(y.ptr<T>(), x.ptr<T>(), n, drop);
    }
    check_launch("dropout");
  });
}

}  // namespace fovea::cuda
