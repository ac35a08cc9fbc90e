#pragma once
// The tanh form of GELU and its slope, for a register of T.

#include "kernels/cpu/lanes.h"

namespace fovea::cpu::FOVEA_ISA {

constexpr double kRootTwoOverPi = 0.79788456080286535588;
constexpr double kGeluCubic = 0.044715;

// tanh(sqrt(2/pi) (x + 0.044715 x^3)).
template <class T, class V>
V gelu_tanh(V x) {
  return tanh(every<T>(kRootTwoOverPi) * x * (every<T>(1) + every<T>(kGeluCubic) * (x * x)));
}

template <class T, class V>
V gelu(V x) {
  return every<T>(0.5) * x * (every<T>(1) + gelu_tanh<T>(x));
}

template <class T, class V>
V gelu_slope(V x) {
  const V one = every<T>(1), t = gelu_tanh<T>(x);
  const V inner = every<T>(kRootTwoOverPi) * (one + every<T>(3 * kGeluCubic) * (x * x));
  return every<T>(0.5) * (one + t + x * (one - t * t) * inner);
}

}  // namespace fovea::cpu::FOVEA_ISA
