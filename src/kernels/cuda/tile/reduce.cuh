#pragma once
// Reductions over a warp and a block, in a fixed order: the same bits every time.

#include "kernels/cuda/launch.cuh"

namespace fovea::cuda {

constexpr int kWarp = 32;

template <class T>
__device__ __forceinline__ T warp_sum(T value) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2)
    value += __shfl_xor_sync(~0u, value, offset);
  return value;
}

__device__ __forceinline__ float warp_max(float value) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2)
    value = fmaxf(value, __shfl_xor_sync(~0u, value, offset));
  return value;
}

// Every thread of the block gets the sum; warps are added in their order. `shared` holds one value
// a warp and may be used again after the call.
template <int kThreads, class T>
__device__ __forceinline__ T block_sum(T value, T* shared) {
  constexpr int kWarps = kThreads / kWarp;
  static_assert(kThreads % kWarp == 0, "a block is made of whole warps");
  value = warp_sum(value);
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = value;
  __syncthreads();
  T total = shared[0];
#pragma unroll
  for (int warp = 1; warp < kWarps; ++warp)
    total += shared[warp];
  __syncthreads();
  return total;
}

template <int kThreads>
__device__ __forceinline__ float block_max(float value, float* shared) {
  constexpr int kWarps = kThreads / kWarp;
  value = warp_max(value);
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = value;
  __syncthreads();
  float largest = shared[0];
#pragma unroll
  for (int warp = 1; warp < kWarps; ++warp)
    largest = fmaxf(largest, shared[warp]);
  __syncthreads();
  return largest;
}

}  // namespace fovea::cuda
