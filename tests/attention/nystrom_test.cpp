// Nystromformer: baselines.md 14.5.

#include <cmath>

#include <doctest/doctest.h>

#include "attention/contract.h"
#include "attention/contract/trial.h"
#include "config/yaml.h"
#include "core/error.h"
#include "trial_method.h"

using namespace fovea;
using namespace fovea::attention;
using contract::distance;
using contract::Outcome;
using contract::Tokens;
using contract::Trial;
using fovea::test::run64;

namespace {

Trial trial_of(const std::string& options, std::int64_t n) {
  Trial trial{.spec = find_attention("nystrom"), .options = config::parse(options, "test")};
  trial.heads = 4;
  return trial.sized(n);
}

Outcome exact(Trial trial, const Tokens& tokens) {
  trial.spec = find_attention("standard");
  trial.options = config::parse("", "test");
  return run64(trial, tokens);
}

double worst(const Outcome& found, const Outcome& expected) {
  double error = 0;
  for (const char* name : {"o", "grad.q", "grad.k", "grad.v"})
    error = std::max(error, distance(found.at(name), expected.at(name)));
  return error;
}

// Without a gradient of the log-sum-exp, which this method has not.
Tokens tokens_of(const Trial& trial) {
  Tokens tokens = contract::draw_tokens(trial);
  for (std::int64_t i = 0; i < tokens.dlse.numel(); ++i)
    tokens.dlse.data<double>()[i] = 0;
  return tokens;
}

}  // namespace

TEST_CASE("equal tokens give back their value") {
  const Trial trial = trial_of("{landmarks: 4, conv_kernel: 0}", 21);
  Tokens tokens = tokens_of(trial);
  for (Tensor Tokens::*part : {&Tokens::q, &Tokens::k, &Tokens::v}) {
    for (std::int64_t n = 1; n < 21; ++n)
      copy_host((tokens.*part).slice(2, n, n + 1).view(), (tokens.*part).slice(2, 0, 1).view());
  }
  const Tensor o = run64(trial, tokens).at("o");
  for (std::int64_t h = 0; h < 4; ++h)
    CHECK(distance(o.slice(1, h, h + 1), tokens.v.slice(1, h / 2, h / 2 + 1)) < 1e-12);
}

TEST_CASE("with no more tokens than landmarks attention is exact, in a longer batch too") {
  const Trial trial = trial_of("{landmarks: 16, conv_kernel: 0}", 16);
  const Tokens tokens = tokens_of(trial);
  CHECK(worst(run64(trial, tokens), exact(trial, tokens)) < 1e-12);
  const Trial longer = trial_of("{landmarks: 16, conv_kernel: 0}", 40);
  Tokens padded = tokens_of(longer);
  padded.key_valid = contract::lengths_mask({11, 16}, 40);
  CHECK(worst(run64(longer, padded), exact(longer, padded)) < 1e-12);
  // Beside a sample that goes through landmarks; holes, too.
  std::vector<double> valid(80, 1.0);
  for (std::size_t j = 40; j < 80; ++j)
    valid[j] = j % 3 == 0 ? 1 : 0;
  padded.key_valid = Tensor::from(valid, {2, 40}, DType::u8);
  const auto second = [](const Outcome& of) {
    Outcome out;
    for (const char* name : {"o", "grad.q", "grad.k", "grad.v"})
      out[name] = of.at(name).slice(0, 1, 2);
    return out;
  };
  CHECK(worst(second(run64(longer, padded)), second(exact(longer, padded))) < 1e-12);
}

TEST_CASE("values of one make rows of nearly one") {
  const Trial trial = trial_of("{landmarks: 8, pinv_iters: 20, conv_kernel: 0}", 50);
  Tokens tokens = tokens_of(trial);
  for (std::int64_t i = 0; i < tokens.v.numel(); ++i)
    tokens.v.data<double>()[i] = 1;
  for (const double value : run64(trial, tokens).at("o").values())
    CHECK(value == doctest::Approx(1).epsilon(1e-4));
}

TEST_CASE("more landmarks and steps bring it closer to exact attention") {
  const Trial few = trial_of("{landmarks: 4, pinv_iters: 20, conv_kernel: 0}", 96),
              many = trial_of("{landmarks: 48, pinv_iters: 20, conv_kernel: 0}", 96);
  Tokens tokens = tokens_of(few);
  // Neighbours are alike, or segments would mean nothing.
  for (Tensor Tokens::*part : {&Tokens::q, &Tokens::k}) {
    for (std::int64_t n = 1; n < 96; n += 2)
      copy_host((tokens.*part).slice(2, n, n + 1).view(), (tokens.*part).slice(2, n - 1, n).view());
  }
  const Tensor expected = exact(few, tokens).at("o");
  const double far = distance(run64(few, tokens).at("o"), expected),
               near = distance(run64(many, tokens).at("o"), expected);
  CHECK(near < 1e-3);
  CHECK(far > 10 * near);
}

TEST_CASE("the convolution adds the values around a token, and can be left out") {
  const Trial off = trial_of("{landmarks: 8, conv_kernel: 0}", 20),
              on = trial_of("{landmarks: 8, conv_kernel: 3}", 20);
  Tokens tokens = tokens_of(on);
  tokens.parameters["conv"] =
      Tensor::from(std::vector<double>{0, 1, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0}, {4, 3}, DType::f64);
  tokens.key_valid = contract::lengths_mask({20, 12}, 20);
  const Tensor with = run64(on, tokens).at("o"), without = run64(off, tokens).at("o");
  const auto at = [](const Tensor& x, std::int64_t b, std::int64_t h, std::int64_t n) {
    return x.slice(0, b, b + 1).slice(1, h, h + 1).slice(2, n, n + 1).values().front();
  };
  for (const auto& [h, shift] : {std::pair<std::int64_t, std::int64_t>{0, 0}, {1, -1}, {2, 1}}) {
    CAPTURE(h);
    CHECK(at(with, 0, h, 7) - at(without, 0, h, 7) ==
          doctest::Approx(at(tokens.v, 0, h / 2, 7 + shift)));
  }
  CHECK(at(with, 1, 2, 11) == doctest::Approx(at(without, 1, 2, 11)));  // the next one is padding
  CHECK(at(with, 1, 0, 15) == 0);
}

TEST_CASE("16-bit runs of 32 landmarks stay near f64") {
  for (const Precision precision : {Precision::bf16_mixed, Precision::fp16_mixed}) {
    Trial trial = trial_of("{landmarks: 32, conv_kernel: 0}", 160);
    trial.qk_dim = trial.v_dim = 16;
    const Tokens tokens = tokens_of(trial);
    const Outcome found = contract::run(trial, tokens, {.precision = precision}),
                  expected = run64(trial, tokens);
    CHECK(worst(found, expected) < 2e-2);
  }
}

TEST_CASE("a causal model is refused with the reason") {
  AttentionConfig config{.n_embd = 16, .n_head = 2, .n_kv_head = 2, .qk_dim = 8, .v_dim = 8};
  config.max_len = 32;
  config.causal = true;
  std::string said;
  try {
    make_attention(*find_attention("nystrom"), config, config::parse("", "a.yaml"));
  } catch (const ConfigError& error) {
    said = error.what();
  }
  CHECK(said.find("depends on later tokens") != std::string::npos);
}
