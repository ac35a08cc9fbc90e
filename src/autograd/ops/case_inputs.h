#pragma once
// How most op cases draw their inputs; a family with other ranges says so in its own file.

#include <span>

#include "autograd/op_registry.h"

namespace fovea::cases {

using Kind = CaseInput::Kind;
using Inputs = std::span<const Var>;

// Uniform in [-bound, bound).
inline CaseInput real(Shape shape, double bound = 1) {
  return {shape, Kind::real, -bound, bound};
}
// The same, with its gradient accumulated in a parameter's buffer.
inline CaseInput parameter(Shape shape) {
  return {shape, Kind::parameter};
}

// 0 or 1.
inline CaseInput mask(Shape shape) {
  return {shape, Kind::mask};
}

}  // namespace fovea::cases
