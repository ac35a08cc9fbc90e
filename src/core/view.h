#pragma once
// All a kernel sees of a tensor: plain data, no ownership, no std headers.

#include <cstdint>

#include "core/device.h"
#include "core/dtype.h"

namespace fovea {

constexpr int kMaxRank = 6;

struct View {
  void* data = nullptr;  // null: not wanted (an output) or absent (an input)
  std::int64_t dim[kMaxRank] = {};
  std::int64_t stride[kMaxRank] = {};  // in elements
  std::int32_t rank = 0;
  DType dtype = DType::f32;
  Device device;

  explicit operator bool() const { return data != nullptr; }
  template <class T>
  T* ptr() const {
    return static_cast<T*>(data);
  }
  std::int64_t numel() const {
    std::int64_t n = 1;
    for (int i = 0; i < rank; ++i)
      n *= dim[i];
    return n;
  }
  // Size of the last axis; 1 for a scalar.
  std::int64_t cols() const { return rank == 0 ? 1 : dim[rank - 1]; }
  // Product of all axes but the last.
  std::int64_t rows() const {
    std::int64_t n = 1;
    for (int i = 0; i + 1 < rank; ++i)
      n *= dim[i];
    return n;
  }
  bool is_contiguous() const {
    std::int64_t expected = 1;
    for (int i = rank - 1; i >= 0; --i) {
      if (dim[i] != 1 && stride[i] != expected) return false;
      expected *= dim[i];
    }
    return true;
  }
};

// An opaque handle of an execution stream: a ThreadPool on the CPU, a cudaStream_t on CUDA, a
// CostCounter on meta.
struct StreamRef {
  void* native = nullptr;
};

}  // namespace fovea
