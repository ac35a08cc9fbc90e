#pragma once
// Reductions over a warp and a block, in a fixed order: the same bits every time.

#include "kernels/cuda/launch.cuh"

namespace fovea::cuda {

constexpr int kWarp = 32;

// Over each kLanes neighbouring lanes of a warp, a power of two.
template <int kLanes = kWarp, class T>
__device__ __forceinline__ T warp_sum(T value) {
#pragma unroll
  for (int offset = kLanes / 2; offset > 0; offset /= 2)
    value += __shfl_xor_sync(~0u, value, offset);
  return value;
}

template <int kLanes = kWarp>
__device__ __forceinline__ float warp_max(float value) {
#pragma unroll
  for (int offset = kLanes / 2; offset > 0; offset /= 2)
    value = fmaxf(value, __shfl_xor_sync(~0u, value, offset));
  return value;
}

// What `of_two` makes of the warps' values, in their order, for every thread of the block. `shared`
// holds one value a warp and may be used again after the call.
template <int kThreads, class T, class F>
__device__ __forceinline__ T over_warps(T value, T* shared, F of_two) {
  constexpr int kWarps = kThreads / kWarp;
  static_assert(kThreads % kWarp == 0, "a block is made of whole warps");
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = value;
  __syncthreads();
  T all = shared[0];
#pragma unroll
  for (int warp = 1; warp < kWarps; ++warp)
    all = of_two(all, shared[warp]);
  __syncthreads();
  return all;
}

// Over the threads of a block, for all of them; `shared` as above.
template <int kThreads, class T>
__device__ __forceinline__ T block_sum(T value, T* shared) {
  return over_warps<kThreads>(warp_sum(value), shared, [](T a, T b) { return a + b; });
}
template <int kThreads>
__device__ __forceinline__ float block_max(float value, float* shared) {
  return over_warps<kThreads>(warp_max(value), shared,
                              [](float a, float b) { return fmaxf(a, b); });
}

}  // namespace fovea::cuda
