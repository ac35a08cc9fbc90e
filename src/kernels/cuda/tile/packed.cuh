#pragma once
// Some neighbouring elements as they lie in memory: loads can be issued before anything is
// converted. kWidth is 8 (16-byte accesses, aligned) or 1 (any address).

#include "kernels/cuda/tile/copy.cuh"

namespace fovea::cuda {

template <class T, int kWidth>
struct Packed;

template <class T>
struct Packed<T, 1> {
  T value;
  __device__ __forceinline__ void load(const T* from) { value = *from; }
  __device__ __forceinline__ void unpack(float (&to)[1]) const { to[0] = to_float(value); }
};

template <class T>
struct Packed<T, kVector> {
  uint4 words[sizeof(T) / 2];
  __device__ __forceinline__ void load(const T* from) {
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(T)) / 2; ++i)
      words[i] = reinterpret_cast<const uint4*>(from)[i];
  }
  __device__ __forceinline__ void unpack(float (&to)[kVector]) const {
    load8(to, reinterpret_cast<const T*>(words));
  }
};

template <class T>
__device__ __forceinline__ void store_packed(T* to, const float (&from)[1]) {
  *to = from_float<T>(from[0]);
}
template <class T>
__device__ __forceinline__ void store_packed(T* to, const float (&from)[kVector]) {
  store8(to, from);
}

inline bool is_aligned(const void* at) {
  return reinterpret_cast<unsigned long long>(at) % 16 == 0;
}

// Rows of x start at multiples of 16 bytes, or x is absent.
inline bool is_packable(const View& x, std::int64_t cols) {
  return is_aligned(x.data) && cols % kVector == 0;
}

// a / b for a >= 0, b > 0; most sizes fit 32 bits, where a division costs a tenth.
__device__ __forceinline__ std::int64_t quotient(std::int64_t a, std::int64_t b) {
  if (((a | b) >> 32) != 0) return a / b;
  return static_cast<unsigned>(a) / static_cast<unsigned>(b);
}

}  // namespace fovea::cuda
