#include <cmath>

#include <doctest/doctest.h>

#include "attention/kernel_method.h"

using namespace fovea;
using namespace fovea::test;

TEST_CASE("cosFormer equals its weights by all pairs, and the cosine never turns negative") {
  for (const bool causal : {false, true}) {
    const Trial trial = method("cosformer", "{n_ref: 45, chunk: 16}", causal, 45);
    const Tokens tokens = draw_tokens(trial);
    double least = 1;
    const auto weight = [&](const double* q, const double* k, std::size_t i, std::size_t j) {
      double sum = 0;
      for (int c = 0; c < 8; ++c)
        sum += std::max(0.0, q[c]) * std::max(0.0, k[c]);
      const double cosine =
          std::cos(1.5707963267948966 * (static_cast<double>(i) - static_cast<double>(j)) / 45);
      least = std::min(least, cosine);
      return sum * cosine;
    };
    CHECK(distance(outputs(trial, tokens), by_pairs(trial, tokens, 1e-6, 0, weight)) < 1e-9);
    CHECK(least >= 0);
  }
}

TEST_CASE(
    "a longer sequence changes no earlier row of cosFormer, unless its length is the reference") {
  const auto prefix_error = [](const std::string& options) {
    const Trial longer = method("cosformer", options, true, 40);
    const Tokens tokens = draw_tokens(longer);
    Tokens cut = tokens;
    for (Tensor Tokens::*part : {&Tokens::q, &Tokens::k, &Tokens::v})
      cut.*part = clone((tokens.*part).slice(2, 0, 25));
    cut.x = clone(tokens.x.slice(1, 0, 25));
    Trial shorter = longer.sized(25);
    return distance(outputs(shorter, cut), outputs(longer, tokens).slice(2, 0, 25));
  };
  CHECK(prefix_error("n_ref: max_len") == 0);
  CHECK(prefix_error("n_ref: 40") == 0);
  CHECK(prefix_error("n_ref: current") > 1e-3);
}

TEST_CASE("cosFormer refuses more tokens than its reference") {
  const Trial trial = method("cosformer", "n_ref: 20", true, 21);
  CHECK_THROWS_WITH_AS(
      outputs(trial, draw_tokens(trial)),
      "cosformer: 21 tokens, but model.attention.n_ref is 20: weights would become "
      "negative",
      ShapeError);
}
