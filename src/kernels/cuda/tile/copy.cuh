#pragma once
// Vector loads and stores: eight values of any float type as f32, in 16-byte accesses.

#include "kernels/cuda/launch.cuh"

namespace fovea::cuda {

constexpr int kVector = 8;

// True where eight values can be read at once: 16-byte aligned rows of a multiple of eight.
inline bool is_vectorised(const View& x) {
  return !x || (reinterpret_cast<unsigned long long>(x.data) % 16 == 0 && x.cols() % kVector == 0);
}

__device__ __forceinline__ void load8(float (&to)[8], const float* from) {
  const float4 a = *reinterpret_cast<const float4*>(from),
               b = *reinterpret_cast<const float4*>(from + 4);
  to[0] = a.x, to[1] = a.y, to[2] = a.z, to[3] = a.w;
  to[4] = b.x, to[5] = b.y, to[6] = b.z, to[7] = b.w;
}
__device__ __forceinline__ void load8(float (&to)[8], const bf16* from) {
  const uint4 raw = *reinterpret_cast<const uint4*>(from);
  const unsigned words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    to[2 * i] = __uint_as_float(words[i] << 16);
    to[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
  }
}
__device__ __forceinline__ void load8(float (&to)[8], const f16* from) {
  const uint4 raw = *reinterpret_cast<const uint4*>(from);
  const unsigned words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 pair = __half22float2(*reinterpret_cast<const __half2*>(&words[i]));
    to[2 * i] = pair.x;
    to[2 * i + 1] = pair.y;
  }
}

__device__ __forceinline__ void store8(float* to, const float (&from)[8]) {
  *reinterpret_cast<float4*>(to) = make_float4(from[0], from[1], from[2], from[3]);
  *reinterpret_cast<float4*>(to + 4) = make_float4(from[4], from[5], from[6], from[7]);
}
template <class T>
__device__ __forceinline__ void store8(T* to, const float (&from)[8]) {
  uint4 raw;
  unsigned* words = &raw.x;
#pragma unroll
  for (int i = 0; i < 4; ++i)
    words[i] = pack<T>(from[2 * i], from[2 * i + 1]);
  *reinterpret_cast<uint4*>(to) = raw;
}

}  // namespace fovea::cuda
