// The vector functions against the standard library's, compiled for AVX2 as the kernels are.

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include "core/isa.h"

// The standard headers come first: only what follows may use AVX2.
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,bmi2")
#define FOVEA_ISA avx2
#define FOVEA_ISA_avx2
#include "kernels/cpu/lanes.h"

namespace {

namespace simd = fovea::cpu::avx2;
using simd::Floats;
using simd::kLanes;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

float exp_of(float x) {
  const Floats out = simd::exp(simd::splat(x));
  return out[kLanes - 1];
}
float tanh_of(float x) {
  const Floats out = simd::tanh(simd::splat(x));
  return out[kLanes - 1];
}

// The distance of a float from the exact value, in units of the last place of the exact value.
double units(float found, double exact) {
  int exponent = 0;
  std::frexp(exact, &exponent);
  return std::fabs(static_cast<double>(found) - exact) /
         std::ldexp(1.0, std::max(exponent - 24, -149));
}

template <class F>
double worst_units(F&& vector, double (*exact)(double), float low, float high) {
  double worst = 0;
  constexpr int kPoints = 200000;
  for (int i = 0; i <= kPoints; ++i) {
    const float x = low + (high - low) * static_cast<float>(i) / kPoints;
    worst = std::max(worst, units(vector(x), exact(static_cast<double>(x))));
  }
  return worst;
}

}  // namespace

TEST_CASE("exp is within 2 units in the last place of normal results") {
  CHECK(worst_units(exp_of, std::exp, -87.3f, 88.7f) <= 2);
  CHECK(worst_units(exp_of, std::exp, -1.0f, 1.0f) <= 2);
  CHECK(exp_of(0.0f) == 1.0f);
}

TEST_CASE("exp goes to zero and to infinity, and keeps NaN") {
  CHECK(exp_of(-kInfinity) == 0.0f);
  CHECK(exp_of(-1000.0f) == 0.0f);
  CHECK(exp_of(89.0f) == kInfinity);
  CHECK(exp_of(kInfinity) == kInfinity);
  CHECK(std::isnan(exp_of(std::numeric_limits<float>::quiet_NaN())));
}

TEST_CASE("tanh is within 4 units in the last place, odd, and saturates") {
  CHECK(worst_units(tanh_of, std::tanh, -12.0f, 12.0f) <= 4);
  CHECK(worst_units(tanh_of, std::tanh, -0.2f, 0.2f) <= 4);
  CHECK(tanh_of(0.0f) == 0.0f);
  CHECK(tanh_of(30.0f) == 1.0f);
  CHECK(tanh_of(-30.0f) == -1.0f);
  CHECK(tanh_of(-kInfinity) == -1.0f);
  CHECK(std::isnan(tanh_of(std::numeric_limits<float>::quiet_NaN())));
}

TEST_CASE("vectors convert 16-bit types as single elements do, special values included") {
  std::vector<float> values{0.0f,        -0.0f,
                            1.0f,        -1.5f,
                            65504.0f,    65520.0f,
                            1e-7f,       6e-8f,
                            2e-8f,       1e-40f,
                            3e38f,       kInfinity,
                            -kInfinity,  std::numeric_limits<float>::quiet_NaN(),
                            1.00390625f, 1.01171875f};
  for (int i = 0; i < 4096; ++i)
    values.push_back(std::ldexp(1.0f + static_cast<float>(i) * 0x1.3p-12f, i % 40 - 24));
  for (std::size_t i = 0; i + kLanes <= values.size(); i += kLanes) {
    fovea::BFloat16 wide_b[kLanes];
    fovea::Half wide_h[kLanes];
    simd::store(wide_b, simd::load(values.data() + i));
    simd::store(wide_h, simd::load(values.data() + i));
    const Floats back_b = simd::load(wide_b), back_h = simd::load(wide_h);
    for (std::size_t j = 0; j < kLanes; ++j) {
      const float v = values[i + j];
      CAPTURE(v);
      CHECK(wide_b[j].bits == fovea::bf16_bits(v));
      if (!std::isnan(v)) CHECK(wide_h[j].bits == fovea::half_bits(v));
      CHECK(std::isnan(back_b[j]) == std::isnan(v));
      CHECK(std::isnan(back_h[j]) == std::isnan(v));
      if (std::isnan(v)) continue;
      CHECK(back_b[j] == static_cast<float>(wide_b[j]));
      CHECK(back_h[j] == static_cast<float>(wide_h[j]));
    }
  }
}

TEST_CASE("sums over lanes are a tree of halves") {
  Floats v;
  for (int i = 0; i < kLanes; ++i)
    v[i] = std::ldexp(1.0f, 4 * i) + static_cast<float>(i) * 0.1f;
  const float expected = ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
  CHECK(simd::sum(v) == expected);
  CHECK(simd::max_lane(v) == v[7]);
}

#pragma GCC pop_options
