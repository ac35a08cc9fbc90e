#pragma once
// The tanh form of GELU and its slope. T is the dtype that is stored: bf16 hides the error of the
// hardware's tanh (2^-11, and times |x| in the slope), f16 that of the fast exponential, f32 none.

#include "kernels/cuda/launch.cuh"

namespace fovea::cuda {

constexpr float kRootTwoOverPi = 0.7978845608f;
constexpr float kGeluCubic = 0.044715f;

template <class T>
constexpr bool kIsHalf = false;
template <>
inline constexpr bool kIsHalf<f16> = true;

template <class T>
__device__ __forceinline__ float tanh_of(float x) {
  if constexpr (sizeof(T) == 4) return tanhf(x);
  if constexpr (kIsHalf<T>) return 1.0f - __fdividef(2.0f, 1.0f + __expf(2.0f * x));
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

template <class T>
__device__ __forceinline__ float gelu(float x) {
  return 0.5f * x * (1.0f + tanh_of<T>(kRootTwoOverPi * x * (1.0f + kGeluCubic * (x * x))));
}

template <class T>
__device__ __forceinline__ float gelu_slope(float x) {
  const float square = x * x, t = tanh_of<T>(kRootTwoOverPi * x * (1.0f + kGeluCubic * square));
  const float inner = kRootTwoOverPi * (1.0f + 3 * kGeluCubic * square);
  return 0.5f * (1.0f + t + x * (1.0f - t * t) * inner);
}

}  // namespace fovea::cuda
