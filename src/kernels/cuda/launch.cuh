#pragma once
// What every CUDA kernel file starts from: streams, checked launches, dtypes as types.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "core/cuda_queue.h"
#include "core/dtype.h"
#include "core/view.h"

namespace fovea::cuda {

using bf16 = __nv_bfloat16;
using f16 = __half;

inline cudaStream_t stream_of(StreamRef stream) {
  return static_cast<cudaStream_t>(static_cast<CudaQueue*>(stream.native)->stream);
}

// Memory for the partial results of one launcher, 256-byte aligned, uninitialised; valid until the
// next launcher on the stream asks. One call a launcher: cut it into pieces yourself. Grows when
// more is asked than ever before, which a capture must not see: the eager steps before it do.
void* scratch(StreamRef stream, std::size_t bytes, const char* launcher);

// After every launch: throws DeviceError naming the launcher and what CUDA reports. Defined in
// runtime.cpp, so that no CUDA source sees a standard header.
void check_launch(const char* launcher);
// Throws DeviceError: f64 and integers have no kernel here, or a shape is not supported.
[[noreturn]] void refuse(const char* launcher, const char* why);
[[noreturn]] void refuse(const char* launcher, DType dtype);
// For the results of runtime calls in launchers (cudaFuncSetAttribute).
void check_call(cudaError_t error, const char* launcher);
// Streaming multiprocessors of the current device, asked for once.
int multiprocessors();

// Launches a kernel with so many bytes of dynamic shared memory, which may be more than it gets
// without asking, and checks the launch. Arguments become the kernel's parameters as in a call.
template <class... Parameters, class... Arguments>
void launch_shared(StreamRef stream, const char* launcher, void (*kernel)(Parameters...), dim3 grid,
                   int threads, unsigned bytes, const Arguments&... arguments) {
  constexpr unsigned kUnasked = 40 * 1024;  // 48 KiB, less what a kernel may have of static memory
  if (bytes > kUnasked)
    check_call(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(bytes)),
               launcher);
  kernel<<<grid, static_cast<unsigned>(threads), bytes, stream_of(stream)>>>(arguments...);
  check_launch(launcher);
}

// Calls fn with a value of the type that `dtype` names: for_float(x.dtype, "gelu", [&](auto zero) {
// using T = decltype(zero); ... }). f32, bf16 and f16.
template <class F>
void for_float(DType dtype, const char* launcher, F&& fn) {
  switch (dtype) {
    case DType::f32:
      return fn(float{});
    case DType::bf16:
      return fn(bf16{});
    case DType::f16:
      return fn(f16{});
    default:
      refuse(launcher, dtype);
  }
}

inline unsigned blocks_for(std::int64_t work, std::int64_t per_block) {
  return static_cast<unsigned>((work + per_block - 1) / per_block);
}

// Scalar conversions; round to nearest even.
__device__ __forceinline__ float to_float(float x) {
  return x;
}
__device__ __forceinline__ float to_float(bf16 x) {
  return __bfloat162float(x);
}
__device__ __forceinline__ float to_float(f16 x) {
  return __half2float(x);
}
template <class T>
__device__ __forceinline__ T from_float(float x);
template <>
__device__ __forceinline__ float from_float<float>(float x) {
  return x;
}
template <>
__device__ __forceinline__ bf16 from_float<bf16>(float x) {
  return __float2bfloat16_rn(x);
}
template <>
__device__ __forceinline__ f16 from_float<f16>(float x) {
  return __float2half_rn(x);
}

// Two neighbouring 16-bit numbers in one register.
template <class T>
__device__ __forceinline__ unsigned pack(float low, float high) {
  static_assert(sizeof(T) == 2);
  if constexpr (__is_same(T, bf16)) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const unsigned*>(&pair);
  } else {
    const __half2 pair = __floats2half2_rn(low, high);
    return *reinterpret_cast<const unsigned*>(&pair);
  }
}
template <class T>
__device__ __forceinline__ float2 unpack(unsigned both) {
  static_assert(sizeof(T) == 2);
  if constexpr (__is_same(T, bf16))
    return make_float2(__uint_as_float(both << 16), __uint_as_float(both & 0xffff0000u));
  else
    return __half22float2(*reinterpret_cast<const __half2*>(&both));
}

}  // namespace fovea::cuda
