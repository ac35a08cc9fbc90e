#pragma once
// What every op is given. Nothing reaches an op through globals.

#include <cstdint>
#include <string_view>

#include "core/device.h"
#include "core/memory.h"
#include "core/philox.h"
#include "core/precision.h"
#include "core/random.h"
#include "core/stream.h"
#include "core/tensor.h"

namespace fovea {

class Tape;

struct Ctx {
  Device device;
  Stream& stream;
  Allocator& activations;
  const StepState* at = nullptr;  // null: step 0, sample 0
  Tape* tape = nullptr;           // null: nothing is recorded (evaluation)
  bool training = false;
  Precision precision = Precision::fp32;
  std::uint64_t seed = 0;
  bool fuse = true;  // ops.fuse: false runs the compositions of fused ops
  const char* backward_of =
      nullptr;  // the op whose backward runs: its name tags the memory it takes

  // Random numbers: a pure function of (seed, name, step, global sample, element).
  Key key(std::string_view name) const { return {seed, hash_name(name), at}; }
  // Memory of this step, uninitialised. The tag is the calling op's name.
  Tensor empty(Shape shape, DType dtype, const char* tag = __builtin_FUNCTION()) const {
    return Tensor::empty(activations, shape, dtype, device,
                         backward_of != nullptr ? backward_of : tag);
  }
  Tensor empty_like(const Tensor& like, const char* tag = __builtin_FUNCTION()) const {
    return empty(like.shape(), like.dtype(), tag);
  }
  Tensor zeros(Shape shape, DType dtype, const char* tag = __builtin_FUNCTION()) const;
  DType compute() const { return compute_dtype(precision); }
};

}  // namespace fovea
