#include <cmath>

#include <doctest/doctest.h>

#include "attention/kernel_method.h"

using namespace fovea;
using namespace fovea::test;

TEST_CASE("the Linear Transformer equals its weights by all pairs") {
  for (const bool causal : {false, true}) {
    const Trial trial = method("linear", "chunk: 16", causal, 45);
    const Tokens tokens = draw_tokens(trial);
    const auto weight = [](const double* q, const double* k, std::size_t, std::size_t) {
      double sum = 0;
      for (int c = 0; c < 8; ++c)
        sum += elu1(q[c]) * elu1(k[c]);
      return sum;
    };
    CHECK(distance(outputs(trial, tokens), by_pairs(trial, tokens, -1e9, 1e-6, weight)) < 1e-12);
  }
}

TEST_CASE("large key features leave the Linear Transformer close to the mean of the values") {
  const Trial trial = method("linear", "", false, 20);
  Tokens tokens = draw_tokens(trial);
  for (std::int64_t i = 0; i < tokens.k.numel(); ++i)
    tokens.k.data<double>()[i] += 1000;
  const Tensor o = outputs(trial, tokens);
  const std::vector<double> v = tokens.v.slice(0, 0, 1).slice(1, 0, 1).values();
  for (std::size_t c = 0; c < 8; ++c) {
    double mean = 0;
    for (std::size_t j = 0; j < 20; ++j)
      mean += v[j * 8 + c] / 20;
    CHECK(std::fabs(o.values()[c] - mean) < 0.02);
  }
}

TEST_CASE("sqrt_n divides by the root of the number of valid keys, and has no causal form") {
  const Trial trial = method("linear", "normaliser: sqrt_n", false, 10);
  Tokens tokens = draw_tokens(trial);
  tokens.key_valid = lengths_mask({6, 6}, 10);
  const Tensor found = outputs(trial, tokens);
  const std::vector<double> q = tokens.q.values(), k = tokens.k.values(), v = tokens.v.values();
  double sum = 0;
  for (std::size_t j = 0; j < 6; ++j) {
    for (std::size_t c = 0; c < 8; ++c)
      sum += elu1(q[c]) * elu1(k[j * 8 + c]) * v[j * 8];
  }
  CHECK(found.values()[0] == doctest::Approx(sum / std::sqrt(6.0)));
  CHECK(refusal("linear", "normaliser: sqrt_n", true).find("causal") != std::string::npos);
}

TEST_CASE("ALiBi decays the Linear Transformer's weights by slope and distance") {
  Trial trial = method("linear", "chunk: 16", true, 45);
  trial.heads = trial.kv_heads = 1;  // of slope 2^-8
  trial.position = Position::alibi;
  const Tokens tokens = draw_tokens(trial);
  const auto weight = [](const double* q, const double* k, std::size_t i, std::size_t j) {
    double sum = 0;
    for (int c = 0; c < 8; ++c)
      sum += elu1(q[c]) * elu1(k[c]);
    return sum * std::exp(-static_cast<double>(i - j) / 256);
  };
  CHECK(distance(outputs(trial, tokens), by_pairs(trial, tokens, -1e9, 1e-6, weight)) < 1e-12);
}
