#pragma once
// Element types. Plain enough for CUDA sources.

#include <cstdint>

namespace fovea {

// f64 exists on the CPU only: gradient checks and oracles.
enum class DType : std::uint8_t { f64, f32, bf16, f16, i64, i32, u8 };

constexpr std::int64_t size_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
    case DType::i64:
      return 8;
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::bf16:
    case DType::f16:
      return 2;
    case DType::u8:
      return 1;
  }
  return 0;
}

constexpr bool is_float(DType dtype) {
  return dtype == DType::f64 || dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16;
}

// The type in which values of `dtype` are accumulated and statistics are kept: f64 for f64, else
// f32.
constexpr DType acc_of(DType dtype) {
  return dtype == DType::f64 ? DType::f64 : DType::f32;
}

constexpr const char* name_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return "f64";
    case DType::f32:
      return "f32";
    case DType::bf16:
      return "bf16";
    case DType::f16:
      return "f16";
    case DType::i64:
      return "i64";
    case DType::i32:
      return "i32";
    case DType::u8:
      return "u8";
  }
  return "?";
}

}  // namespace fovea
