#pragma once
// The project's only backend dispatch. FOVEA_KERNEL declares a kernel for every backend; FOVEA_ON
// calls it for a device. A kernel that exists on one side only is a link error of the CUDA build.
//
// A CPU definition stands once, in kernels/cpu/<family>.cpp, inside `namespace
// fovea::cpu::FOVEA_ISA`; CMake compiles that file once per instruction set. A CUDA definition
// stands in `namespace fovea::cuda`.

#include "core/cost.h"
#include "core/view.h"

// A .cu file sees the declarations of namespace cuda alone, without a standard header.
#ifndef __CUDACC__
#include "core/error.h"
#include "core/isa.h"
#endif

namespace fovea::meta {

// The default meaning of a kernel on meta: one launch that moves the bytes of its views. Kernels
// whose FLOPs matter have an overload of their own beside their declaration.
template <class T>
void count_bytes(CostCounter& cost, const T& /*argument*/) {
  cost.launches += 0;
}
inline void count_bytes(CostCounter& cost, const View& view) {
  if (view) cost.bytes += static_cast<double>(view.numel() * size_of(view.dtype));
}
template <class... A>
void count(StreamRef stream, const A&... arguments) {
  auto& cost = *static_cast<CostCounter*>(stream.native);
  cost.launches += 1;
  (count_bytes(cost, arguments), ...);
}

}  // namespace fovea::meta

#ifdef __CUDACC__
#define FOVEA_KERNEL(name, ...)             \
  namespace cuda {                          \
  void name(__VA_ARGS__);                   \
  }                                         \
  namespace meta {                          \
  template <class... A>                     \
  void name(StreamRef stream, const A&...); \
  }
#else
#define FOVEA_KERNEL(name, ...)                                                            \
  namespace cpu {                                                                          \
  namespace avx2 {                                                                         \
  void name(__VA_ARGS__);                                                                  \
  }                                                                                        \
  namespace avx512 {                                                                       \
  void name(__VA_ARGS__);                                                                  \
  }                                                                                        \
  template <class... A>                                                                    \
  void name(const A&... arguments) {                                                       \
    ::fovea::isa() == Isa::avx512 ? avx512::name(arguments...) : avx2::name(arguments...); \
  }                                                                                        \
  }                                                                                        \
  namespace cuda {                                                                         \
  void name(__VA_ARGS__);                                                                  \
  }                                                                                        \
  namespace meta {                                                                         \
  template <class... A>                                                                    \
  void name(StreamRef stream, const A&... arguments) {                                     \
    count(stream, arguments...);                                                           \
  }                                                                                        \
  }
#endif

#ifdef FOVEA_WITH_CUDA
#define FOVEA_ON_CUDA(call) ::fovea::cuda::call
#else
#define FOVEA_ON_CUDA(call) throw ::fovea::DeviceError("this build has no CUDA backend: " #call)
#endif

// FOVEA_ON(ctx.device, layer_norm_forward(ctx.stream.ref(), ...));
#define FOVEA_ON(device_, call)           \
  do {                                    \
    const ::fovea::Device on = (device_); \
    if (on.is_meta()) {                   \
      ::fovea::meta::call;                \
    } else if (on.is_cuda()) {            \
      FOVEA_ON_CUDA(call);                \
    } else {                              \
      ::fovea::cpu::call;                 \
    }                                     \
  } while (false)
