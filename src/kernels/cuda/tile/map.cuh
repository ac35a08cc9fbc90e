#pragma once
// Element-wise passes over contiguous arrays of any length and alignment.

#include "kernels/cuda/tile/packed.cuh"

namespace fovea::cuda {

constexpr int kMapThreads = 256;
constexpr int kMapUnroll = 2;  // packs in flight a thread, calibration's choice

// out[i] = f(a[i]), or f(a[i], b[i]) if kTwo, in f32. Every element is read and written by one
// thread, so out may be an input. f.start(), if there is one, runs once a thread. Reads each input
// once, writes once.
template <int kWidth, bool kTwo, class F, class Out, class A, class B>
__global__ void __launch_bounds__(kMapThreads)
    map_kernel(std::int64_t n, F f, Out* out, const A* a, const B* b) {
  if constexpr (requires { f.start(); }) f.start();
  const auto value = [&](float x, float y) {
    if constexpr (kTwo)
      return f(x, y);
    else
      return f(x);
  };
  const std::int64_t packs = n / kWidth,
                     first = std::int64_t{blockIdx.x} * kMapThreads * kMapUnroll + threadIdx.x;
  Packed<A, kWidth> left[kMapUnroll];
  Packed<B, kWidth> right[kMapUnroll];
#pragma unroll
  for (int u = 0; u < kMapUnroll; ++u) {
    const std::int64_t at = first + u * kMapThreads;
    if (at >= packs) continue;
    left[u].load(a + at * kWidth);
    if constexpr (kTwo) right[u].load(b + at * kWidth);
  }
#pragma unroll
  for (int u = 0; u < kMapUnroll; ++u) {
    const std::int64_t at = first + u * kMapThreads;
    if (at >= packs) continue;
    float x[kWidth], y[kWidth] = {};
    left[u].unpack(x);
    if constexpr (kTwo) right[u].unpack(y);
#pragma unroll
    for (int i = 0; i < kWidth; ++i)
      x[i] = value(x[i], y[i]);
    store_packed(out + at * kWidth, x);
  }
  if constexpr (kWidth > 1) {
    if (blockIdx.x + 1 == gridDim.x && threadIdx.x < n % kWidth) {
      const std::int64_t at = packs * kWidth + threadIdx.x;
      out[at] = from_float<Out>(value(to_float(a[at]), kTwo ? to_float(b[at]) : 0.0f));
    }
  }
}

template <bool kTwo, class F, class Out, class A, class B>
void launch_map(StreamRef stream, const char* launcher, std::int64_t n, F f, Out* out, const A* a,
                const B* b) {
  if (n == 0) return;
  constexpr int kPacks = kMapThreads * kMapUnroll;
  if (is_aligned(out) && is_aligned(a) && is_aligned(b)) {
    map_kernel<kVector, kTwo>
        <<<blocks_for(n, kPacks * kVector), kMapThreads, 0, stream_of(stream)>>>(n, f, out, a, b);
  } else {
    map_kernel<1, kTwo>
        <<<blocks_for(n, kPacks), kMapThreads, 0, stream_of(stream)>>>(n, f, out, a, b);
  }
  check_launch(launcher);
}

template <class F, class Out, class A>
void map(StreamRef stream, const char* launcher, std::int64_t n, F f, Out* out, const A* a) {
  launch_map<false>(stream, launcher, n, f, out, a, static_cast<const A*>(nullptr));
}
template <class F, class Out, class A, class B>
void map(StreamRef stream, const char* launcher, std::int64_t n, F f, Out* out, const A* a,
         const B* b) {
  launch_map<true>(stream, launcher, n, f, out, a, b);
}

}  // namespace fovea::cuda
