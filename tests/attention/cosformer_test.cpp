#include <cmath>

#include <doctest/doctest.h>

#include "attention/kernel_method.h"

using namespace fovea;
using namespace fovea::test;

TEST_CASE("cosFormer equals its weights by all pairs, and the cosine never turns negative") {
  for (const bool causal : {false, true}) {
    Trial trial = method("cosformer", "{n_ref: 45, chunk: 16}", causal, 45);
    trial.max_len = 45;
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
    Trial longer = method("cosformer", options, true, 40);
    longer.max_len = 40;
    const Tokens tokens = draw_tokens(longer);
    Tokens cut = tokens;
    for (Tensor Tokens::*part : {&Tokens::q, &Tokens::k, &Tokens::v})
      cut.*part = clone((tokens.*part).slice(2, 0, 25));
    cut.x = clone(tokens.x.slice(1, 0, 25));
    Trial shorter = longer.sized(25);
    return distance(outputs(shorter, cut), outputs(longer, tokens).slice(2, 0, 25));
  };
  CHECK(prefix_error("n_ref: max_len") == 0);
  CHECK(prefix_error("n_ref: 45") == 0);
  CHECK(prefix_error("n_ref: current") > 1e-3);
}

TEST_CASE("cosFormer refuses more tokens than its reference") {
  Trial trial = method("cosformer", "n_ref: 20", true, 21);
  trial.max_len = 20;
  CHECK_THROWS_WITH_AS(
      outputs(trial, draw_tokens(trial)),
      "cosformer: 21 tokens, but model.attention.n_ref is 20: weights would become "
      "negative",
      ShapeError);
}

TEST_CASE("a reference below the model's block_size is refused where it was written") {
  AttentionConfig config = method("cosformer", "", true, 8).config();
  config.max_len = 64;
  const auto made = [&](const char* options) {
    return make_attention(*find_attention("cosformer"), config, config::parse(options, "a.yaml"));
  };
  CHECK_THROWS_WITH_AS(made("n_ref: 10"),
                       "a.yaml:1:8: model.attention.n_ref is 10, but must be at least "
                       "model.block_size (64)",
                       ConfigError);
  CHECK(made("n_ref: 64") != nullptr);
  CHECK(made("n_ref: current") != nullptr);
}

TEST_CASE("only a reference that follows the call leaves the length of cosFormer open") {
  const AttentionSpec& spec = *find_attention("cosformer");
  AttentionConfig config;
  config.max_len = 64;
  const auto most = [&](const char* options) {
    return longest(spec, config, config::parse(options, "test"));
  };
  CHECK(most("") == 64);
  CHECK(most("n_ref: max_len") == 64);
  CHECK(most("n_ref: 200") == 200);
  CHECK(most("n_ref: current") == kAnyLength);
  CHECK(!with_options(spec, config::parse("n_ref: current", "test")).caps.decode);
}
