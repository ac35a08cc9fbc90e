#pragma once
// The precision policy: compute in 16 bit, accumulate in 32, keep state in 32. A run-time value.

#include "core/dtype.h"

namespace fovea {

enum class Precision { fp64, fp32, tf32, fp16_mixed, bf16_mixed };

// The dtype of activations and of the parameters that products read.
constexpr DType compute_dtype(Precision precision) {
  switch (precision) {
    case Precision::fp64:
      return DType::f64;
    case Precision::fp32:
    case Precision::tf32:
      return DType::f32;
    case Precision::fp16_mixed:
      return DType::f16;
    case Precision::bf16_mixed:
      return DType::bf16;
  }
  return DType::f32;
}

// The dtype of master parameters, gradients, optimizer state and statistics.
constexpr DType state_dtype(Precision precision) {
  return precision == Precision::fp64 ? DType::f64 : DType::f32;
}

// As in the YAML: fp64, fp32, tf32, fp16-mixed, bf16-mixed.
constexpr const char* name_of(Precision precision) {
  switch (precision) {
    case Precision::fp64:
      return "fp64";
    case Precision::fp32:
      return "fp32";
    case Precision::tf32:
      return "tf32";
    case Precision::fp16_mixed:
      return "fp16-mixed";
    case Precision::bf16_mixed:
      return "bf16-mixed";
  }
  return "?";
}

}  // namespace fovea
