#include "core/half.h"

#include <cmath>
#include <cstdint>
#include <initializer_list>

#include <doctest/doctest.h>

using namespace fovea;

namespace {

// What the two formats have in common, checked over all 65,536 patterns.
struct Format {
  std::uint16_t (*bits)(float);
  float (*value)(std::uint16_t);
  std::uint32_t infinity;  // the pattern above the largest finite one
};
constexpr Format kHalf{half_bits, half_value, 0x7c00}, kBf16{bf16_bits, bf16_value, 0x7f80};

}  // namespace

TEST_CASE("every 16-bit pattern survives the way through f32, and NaN stays NaN") {
  for (const Format& format : {kHalf, kBf16}) {
    int wrong = 0;
    for (std::uint32_t pattern = 0; pattern < 0x10000; ++pattern) {
      const auto bits = static_cast<std::uint16_t>(pattern);
      const float value = format.value(bits);
      const bool nan = (pattern & 0x7fff) > format.infinity;
      if (nan ? !std::isnan(value) || !std::isnan(format.value(format.bits(value)))
              : format.bits(value) != bits) {
        ++wrong;
      }
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE(
    "neighbours are in order, the middle between them goes to the even one, the rest to the "
    "nearer") {
  for (const Format& format : {kHalf, kBf16}) {
    int wrong = 0;
    for (std::uint32_t pattern = 0; pattern + 1 < format.infinity; ++pattern) {
      const auto low = static_cast<std::uint16_t>(pattern),
                 high = static_cast<std::uint16_t>(pattern + 1);
      const float a = format.value(low), b = format.value(high);
      const float middle = a + (b - a) / 2;  // exact: f32 has a bit to spare
      const auto even = (pattern & 1) == 0 ? low : high;
      const bool right = a < b && format.bits(middle) == even &&
                         format.bits(std::nextafter(middle, 0.0f)) == low &&
                         format.bits(std::nextafter(middle, HUGE_VALF)) == high &&
                         format.bits(-middle) == (even | 0x8000);
      if (!right) ++wrong;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("f16 overflows to infinity at 65520 and underflows to zero at 2^-25") {
  CHECK(half_value(0x7bff) == 65504.0f);
  CHECK(half_bits(std::nextafter(65520.0f, 0.0f)) == 0x7bff);
  CHECK(half_bits(65520.0f) == 0x7c00);
  CHECK(half_bits(-HUGE_VALF) == 0xfc00);
  CHECK(half_value(1) == std::ldexp(1.0f, -24));
  CHECK(half_bits(std::ldexp(1.0f, -25)) == 0);
  CHECK(half_bits(std::nextafter(std::ldexp(1.0f, -25), 1.0f)) == 1);
  CHECK(half_bits(-0.0f) == 0x8000);
}

TEST_CASE("bf16 keeps the exponent of f32 and rounds large values to infinity") {
  CHECK(bf16_value(0x3f80) == 1.0f);
  CHECK(bf16_bits(3.0e38f) == 0x7f62);
  CHECK(bf16_bits(3.4028235e38f) == 0x7f80);
  CHECK(bf16_bits(1e-40f) == 0x0001);
}

TEST_CASE("the types convert explicitly both ways") {
  CHECK(static_cast<float>(Half(1.5f)) == 1.5f);
  CHECK(static_cast<float>(BFloat16(1.00390625f)) == 1.0f);
  CHECK(sizeof(Half) == 2);
  CHECK(sizeof(BFloat16) == 2);
}
