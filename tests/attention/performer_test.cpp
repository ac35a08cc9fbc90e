#include <cmath>

#include <doctest/doctest.h>

#include "attention/contract/trial.h"
#include "attention/linear/running_state.h"
#include "attention/performer/orthogonal.h"
#include "attention/trial_method.h"
#include "config/yaml.h"
#include "core/error.h"

using namespace fovea;
using namespace fovea::attention;
using namespace fovea::attention::contract;
using fovea::test::TrialMethod;

namespace {

Trial performer(const std::string& options, bool causal = false) {
  Trial trial{.spec = find_attention("performer"), .options = config::parse(options, "test")};
  trial.causal = causal;
  return trial;
}

Tensor outputs(const Trial& trial, const Tokens& tokens, Precision precision = Precision::fp64) {
  return run(trial, tokens, {.precision = precision, .backward = false}).at("o");
}

std::string refusal(const std::string& options, bool causal) {
  try {
    const Trial trial = performer(options, causal);
    make_attention(*trial.spec, trial.config(), trial.options);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

// <phi(q), phi(k)> of one draw, by the formula.
double estimate(const std::vector<double>& w, const std::vector<double>& q,
                const std::vector<double>& k) {
  const std::size_t d = q.size(), m = w.size() / d;
  const double scale = std::pow(static_cast<double>(d), -0.25);
  double norm = 0, sum = 0;
  for (std::size_t c = 0; c < d; ++c)
    norm += scale * scale * (q[c] * q[c] + k[c] * k[c]);
  for (std::size_t r = 0; r < m; ++r) {
    double product = 0;
    for (std::size_t c = 0; c < d; ++c)
      product += w[r * d + c] * scale * (q[c] + k[c]);
    sum += std::exp(product - norm / 2);
  }
  return sum / static_cast<double>(m);
}

// Mean and sample standard deviation of the estimate over `draws` draws.
std::pair<double, double> moments(bool orthogonal, int draws, const std::vector<double>& q,
                                  const std::vector<double>& k) {
  double sum = 0, squares = 0;
  for (int i = 0; i < draws; ++i) {
    const double x = estimate(
        random_directions(16, 16, orthogonal, DirectionScale::chi, 1, "draw " + std::to_string(i)),
        q, k);
    sum += x;
    squares += x * x;
  }
  const double mean = sum / draws;
  return {mean, std::sqrt((squares - sum * mean) / (draws - 1))};
}

std::vector<double> small_vector(const std::string& name) {
  const NamedStream stream(2, name);
  std::vector<double> out(16);
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = 0.3 * stream.normal(i);
  return out;
}

}  // namespace

TEST_CASE("directions are orthogonal inside a block, and as long as their scale says") {
  const auto product = [](const std::vector<double>& w, std::size_t a, std::size_t b) {
    double sum = 0;
    for (std::size_t c = 0; c < 8; ++c)
      sum += w[a * 8 + c] * w[b * 8 + c];
    return sum;
  };
  for (const DirectionScale scale : {DirectionScale::chi, DirectionScale::constant}) {
    const std::vector<double> w = random_directions(20, 8, true, scale, 3, "w");
    for (std::size_t a = 0; a < 20; ++a) {
      for (std::size_t b = a / 8 * 8; b < a; ++b)
        CHECK(std::fabs(product(w, a, b)) < 1e-6);
      if (scale == DirectionScale::constant) CHECK(product(w, a, a) == doctest::Approx(8));
    }
  }
  double squares = 0;
  const std::vector<double> w = random_directions(4000, 8, true, DirectionScale::chi, 3, "w");
  for (const double x : w)
    squares += x * x;
  CHECK(squares / 4000 == doctest::Approx(8).epsilon(0.03));
}

TEST_CASE(
    "features estimate exp(<q, k> / sqrt(d)) without bias, orthogonal ones with less spread") {
  const std::vector<double> q = small_vector("q"), k = small_vector("k");
  double product = 0;
  for (std::size_t c = 0; c < 16; ++c)
    product += q[c] * k[c];
  const double exact = std::exp(product / 4);
  constexpr int kDraws = 20000;
  const auto [mean, spread] = moments(true, kDraws, q, k);
  const auto [iid_mean, iid_spread] = moments(false, kDraws, q, k);
  CHECK(std::fabs(mean - exact) < 4 * spread / std::sqrt(kDraws));
  CHECK(std::fabs(iid_mean - exact) < 4 * iid_spread / std::sqrt(kDraws));
  CHECK(spread < iid_spread);
}

TEST_CASE("the error against exact attention falls as the root of the number of features") {
  const auto error = [](int features) {
    double sum = 0;
    for (int seed = 0; seed < 4; ++seed) {
      Trial trial = performer("{eps: 0, redraw_interval: 0, features: " + std::to_string(features) +
                              ", orthogonal: false}")
                        .sized(40);
      const Tokens tokens = draw_tokens(trial, "tokens " + std::to_string(seed), 0.4);
      Trial exact = trial;
      exact.spec = find_attention("standard");
      exact.options = config::parse("kernel: materialised", "test");
      const std::vector<double> a = outputs(trial, tokens).values(),
                                b = outputs(exact, tokens).values();
      for (std::size_t i = 0; i < a.size(); ++i)
        sum += (a[i] - b[i]) * (a[i] - b[i]);
    }
    return std::sqrt(sum);
  };
  const double few = error(32), many = error(2048);
  CHECK(few / many > 8 / 2.5);  // 8 = the root of 64
  CHECK(few / many < 8 * 2.5);
}

TEST_CASE("the stabiliser cancels without eps: running, constant and none give one result") {
  for (const std::string head :
       {"{features: 32, eps: 0", "{features: 32, hyperbolic: true, eps: 0"}) {
    const Trial running = performer(head + "}", true).sized(90);
    const Trial constant = performer(head + ", key_stabiliser: constant}", true).sized(90);
    const Tokens tokens = draw_tokens(running);
    CHECK(distance(outputs(running, tokens), outputs(constant, tokens)) < 1e-12);
  }
}

TEST_CASE("later keys change no bit of earlier rows, even where exponents differ by hundreds") {
  const Trial trial = performer("features: 32", true).sized(130);
  const Tokens tokens = draw_tokens(trial), huge = draw_tokens(trial, "huge", 60);
  const Tensor expected = outputs(trial, tokens, Precision::fp32);
  for (const std::int64_t from : {1, 37, 129}) {
    const Tensor found = outputs(trial, replaced(tokens, from, huge), Precision::fp32);
    CHECK(differing(found.slice(2, 0, from), expected.slice(2, 0, from)) == 0);
  }
}

TEST_CASE("ALiBi decays weights by slope and distance") {
  Trial trial = performer("{features: 512, eps: 0, orthogonal: false}", true).sized(40);
  trial.heads = trial.kv_heads = 1;
  trial.position = Position::alibi;
  const Tokens tokens = draw_tokens(trial, "tokens", 0.1);
  // With small scores attention is nearly the decayed mean of past values; slope 2^-8 of one head.
  const Tensor o = outputs(trial, tokens);
  for (const std::int64_t i : {0, 5, 39}) {
    double mass = 0, sum = 0;
    for (std::int64_t j = 0; j <= i; ++j) {
      const double w = std::exp(-static_cast<double>(i - j) / 256);
      mass += w;
      sum += w * tokens.v.slice(0, 0, 1).slice(2, j, j + 1).slice(3, 0, 1).values()[0];
    }
    CHECK(o.slice(0, 0, 1).slice(2, i, i + 1).slice(3, 0, 1).values()[0] ==
          doctest::Approx(sum / mass).epsilon(0.05));
  }
}

TEST_CASE("directions are redrawn on schedule, as a function of seed, path and step alone") {
  const auto drawn = [](const std::string& options, std::uint64_t seed,
                        const std::vector<std::int64_t>& steps) {
    const Trial trial = performer(options);
    TrialMethod alone(trial, Precision::fp32);
    Ctx& ctx = alone.ctx;
    ctx.seed = seed;
    for (const std::int64_t step : steps)
      alone.method().before_step(ctx, {.step = step, .max_steps = 0});
    return alone.method().buffers()[0]->value.values();
  };
  const std::string often = "{features: 12, redraw_interval: 10}";
  const auto first = drawn(often, 1, {0});
  CHECK(first == drawn(often, 1, {0, 1, 9}));
  CHECK(first != drawn(often, 1, {0, 9, 10}));
  CHECK(drawn(often, 1, {25}) == drawn(often, 1, {0, 12, 20}));  // resumed in between
  CHECK(first != drawn(often, 2, {0}));
  CHECK(drawn("{features: 12, redraw_interval: 0}", 1, {12345}) == first);
  CHECK(drawn("{features: 12, per_head: true}", 1, {0}).size() == 2 * first.size());
}

TEST_CASE("the decoding state has a size of its own, whatever the length") {
  const Trial trial = performer("features: 24", true).sized(40);
  TrialMethod alone(trial, Precision::fp32);
  Ctx& ctx = alone.ctx;
  alone.method().before_step(ctx, {});
  const auto state = alone.method().start(ctx, 2, 1000);
  const auto& running = dynamic_cast<const RunningState&>(*state);
  CHECK(running.bytes() == 2 * (24 * (8 + 1) + 1) * 4);  // sums and their scale, of two heads
  CHECK(state->bytes_per_token() == 0);
}

TEST_CASE("options that contradict each other are refused with the reason") {
  CHECK(refusal("key_stabiliser: global", true).find("later") != std::string::npos);
  CHECK(refusal("key_stabiliser: global", false).empty());
  CHECK(refusal("eps: 0.1", true).find("must be 0") != std::string::npos);
  CHECK(refusal("{eps: 0.1, key_stabiliser: constant}", true).empty());
  CHECK(refusal("project: false", false).find("project") != std::string::npos);
  CHECK(refusal("{hyperbolic: true, features: 9}", false).find("even") != std::string::npos);
  CHECK(refusal("{feature_kernel: relu, hyperbolic: true}", false).find("hyperbolic") !=
        std::string::npos);
}
