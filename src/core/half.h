#pragma once
// 16-bit storage types of the CPU backend; arithmetic happens in f32. Plain enough for CUDA
// sources, which use the hardware's own types instead. Round to nearest even, subnormals kept, NaN
// stays NaN.

#include <cstdint>
#include <cstring>

namespace fovea {

inline std::uint32_t float_bits(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline float bits_float(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline std::uint16_t bf16_bits(float value) {
  const std::uint32_t bits = float_bits(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

inline float bf16_value(std::uint16_t bits) {
  return bits_float(static_cast<std::uint32_t>(bits) << 16);
}

inline std::uint16_t half_bits(float value) {
  const std::uint32_t bits = float_bits(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u)
    return static_cast<std::uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x1ffu));
  if (magnitude >= 0x47800000u)
    return static_cast<std::uint16_t>(sign | 0x7c00u);  // 2^16 and above
  if (magnitude < 0x38800000u) {
    // Subnormal: adding 0.5 puts the unit of 2^-24 at the last mantissa bit, rounded by the FPU.
    const float shifted = bits_float(magnitude) + 0.5f;
    return static_cast<std::uint16_t>(sign | (float_bits(shifted) - 0x3f000000u));
  }
  const std::uint32_t rebased = magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<std::uint16_t>(sign | (rebased >> 13));
}

inline float half_value(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1fu;
  const std::uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 31) return bits_float(sign | 0x7f800000u | (mantissa << 13));
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 5.9604644775390625e-8f;  // 2^-24
    return bits_float(sign | float_bits(magnitude));
  }
  return bits_float(sign | ((exponent + 112u) << 23) | (mantissa << 13));
}

struct BFloat16 {
  std::uint16_t bits = 0;
  BFloat16() = default;
  explicit BFloat16(float value) : bits(bf16_bits(value)) {}
  explicit operator float() const { return bf16_value(bits); }
};

struct Half {
  std::uint16_t bits = 0;
  Half() = default;
  explicit Half(float value) : bits(half_bits(value)) {}
  explicit operator float() const { return half_value(bits); }
};

}  // namespace fovea
