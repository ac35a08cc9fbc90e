#include <cmath>

#include <doctest/doctest.h>

#include "attention/kernel_method.h"
#include "attention/trial_method.h"

using namespace fovea;
using namespace fovea::test;

namespace {

// The directions that a trial's method draws.
std::vector<double> directions(const Trial& trial) {
  TrialMethod alone(trial);
  Ctx& ctx = alone.ctx;
  alone.method().before_step(ctx, {});
  return alone.method().buffers()[0]->value.values();
}

// <phi(q), phi(k)> of pairs of features.
double estimate(const std::vector<double>& w, const double* q, const double* k) {
  const double scale = std::pow(8.0, -0.25);
  double norm = 0, sum = 0;
  for (int c = 0; c < 8; ++c)
    norm += scale * scale * (q[c] * q[c] + k[c] * k[c]) / 2;
  for (std::size_t r = 0; r < w.size() / 8; ++r) {
    double product = 0;
    for (std::size_t c = 0; c < 8; ++c)
      product += w[r * 8 + c] * scale * (q[c] + k[c]);
    sum += std::exp(product - norm) + std::exp(-product - norm);
  }
  return sum / static_cast<double>(w.size() / 4);
}

double exact(const double* q, const double* k) {
  double product = 0;
  for (int c = 0; c < 8; ++c)
    product += q[c] * k[c];
  return std::exp(product / std::sqrt(8.0));
}

}  // namespace

TEST_CASE("weights are exact inside the window and estimated outside it") {
  for (const std::int64_t window : {1, 2, 5, 16}) {
    for (const bool causal : {false, true}) {
      CAPTURE(window);
      CAPTURE(causal);
      const Trial trial = method(
          "scatterbrain", "{features: 12, window: " + std::to_string(window) + "}", causal, 40);
      const Tokens tokens = draw_tokens(trial);
      const std::vector<double> w = directions(trial);
      const auto weight = [&](const double* q, const double* k, std::size_t i, std::size_t j) {
        const std::int64_t apart = static_cast<std::int64_t>(j) - static_cast<std::int64_t>(i);
        const bool inside = apart >= -(window / 2) && apart < (window + 1) / 2;
        return inside ? exact(q, k) : estimate(w, q, k);
      };
      CHECK(distance(outputs(trial, tokens), by_pairs(trial, tokens, 0, 0, weight)) < 1e-10);
    }
  }
}

TEST_CASE("a window over everything is exact attention") {
  for (const bool causal : {false, true}) {
    const Trial trial = method("scatterbrain", "window: 100", causal, 45);
    Trial standard = trial;
    standard.spec = find_attention("standard");
    standard.options = config::parse("kernel: materialised", "test");
    const Tokens tokens = draw_tokens(trial);
    CHECK(distance(outputs(trial, tokens), outputs(standard, tokens)) < 1e-12);
  }
}

TEST_CASE("weights of the two parts are put together however far their sizes lie apart") {
  // Scores in the hundreds: only logarithms of the parts' sums can be compared.
  for (const Precision precision : {Precision::fp32, Precision::bf16_mixed}) {
    const Trial trial = method("scatterbrain", "{features: 16, window: 4}", true, 60);
    for (const auto& [name, value] :
         run(trial, draw_tokens(trial, "large", 20), {.precision = precision})) {
      CAPTURE(name);
      CHECK(nonfinite(value) == 0);
    }
  }
}

TEST_CASE("an odd number of features has no pairs") {
  CHECK(refusal("scatterbrain", "features: 15", true).find("even") != std::string::npos);
  CHECK(refusal("scatterbrain", "{features: 15, hyperbolic: false}", true).empty());
}
