#pragma once
// What a StreamRef of a CUDA stream points to. Plain enough for CUDA sources.

#include <cstddef>
#include <cstdint>

namespace fovea {

struct CudaQueue {
  void* stream = nullptr;   // cudaStream_t
  void* scratch = nullptr;  // of kernels that reduce in two launches; reused by the next one
  std::size_t scratch_bytes = 0;
  std::uint64_t generation = 0;  // grows whenever scratch moves
  void* blas = nullptr;          // the state of kernels/cuda/gemm.cpp, made by the first product
  void (*release_blas)(void*) = nullptr;
  void* sparse = nullptr;  // the same of kernels/cuda/spmm.cpp
  void (*release_sparse)(void*) = nullptr;
  bool tf32 = false;       // products of f32 may round their factors to tf32
  bool capturing = false;  // nothing may be allocated
};

}  // namespace fovea
