#include "models/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include <doctest/doctest.h>

#include "core/error.h"

using namespace fovea;
using models::Choice;
using models::choices;
using models::Sampler;
using models::SamplingConfig;

namespace {

// Probabilities 0.1, 0.4, 0.2, 0.3.
const std::vector<double> kLogits{std::log(0.1), std::log(0.4), std::log(0.2), std::log(0.3)};

std::vector<std::int32_t> ids_of(const std::vector<Choice>& from) {
  std::vector<std::int32_t> out;
  for (const Choice& choice : from)
    out.push_back(choice.id);
  return out;
}

using Ids = std::vector<std::int32_t>;

void check_frequencies(const SamplingConfig& config, const std::vector<double>& expected) {
  constexpr int kDraws = 20000;
  const Sampler sampler(config, 7, 0);
  std::vector<int> seen(expected.size());
  for (int step = 0; step < kDraws; ++step)
    ++seen[static_cast<std::size_t>(sampler.next(kLogits, step))];
  double chi_square = 0;
  int freedom = -1;
  for (std::size_t id = 0; id < expected.size(); ++id) {
    if (expected[id] == 0) {
      CHECK(seen[id] == 0);
      continue;
    }
    const double mean = kDraws * expected[id];
    chi_square += (seen[id] - mean) * (seen[id] - mean) / mean;
    ++freedom;
  }
  CHECK(chi_square < freedom + 4 * std::sqrt(2.0 * freedom) + 1);
}

}  // namespace

TEST_CASE("sampled frequencies are the probabilities") {
  check_frequencies({}, {0.1, 0.4, 0.2, 0.3});
  check_frequencies({.top_k = 2}, {0, 4.0 / 7, 0, 3.0 / 7});
  check_frequencies({.top_p = 0.85}, {0, 4.0 / 9, 2.0 / 9, 3.0 / 9});
  const double sum = std::sqrt(0.1) + std::sqrt(0.4) + std::sqrt(0.2) + std::sqrt(0.3);
  check_frequencies({.temperature = 2}, {std::sqrt(0.1) / sum, std::sqrt(0.4) / sum,
                                         std::sqrt(0.2) / sum, std::sqrt(0.3) / sum});
}

TEST_CASE("top-p keeps the fewest tokens that reach p, and at least one") {
  CHECK(ids_of(choices(kLogits, {.top_p = 0.39})) == Ids{1});
  CHECK(ids_of(choices(kLogits, {.top_p = 0.41})) == Ids{1, 3});
  CHECK(ids_of(choices(kLogits, {.top_p = 0.71})) == Ids{1, 3, 2});
  CHECK(ids_of(choices(kLogits, {.top_p = 0})) == Ids{1});
  CHECK(ids_of(choices(kLogits, {.top_p = 0.9999})).size() == 4);
}

TEST_CASE("temperature comes before top-k, and top-k before top-p") {
  // Of {0.4, 0.3}, renormalised to {0.571, 0.429}, the first reaches 0.55; of all four it does not.
  CHECK(ids_of(choices(kLogits, {.top_k = 2, .top_p = 0.55})) == Ids{1});
  CHECK(ids_of(choices(kLogits, {.top_p = 0.55})) == Ids{1, 3});
  // Squared and renormalised, 0.16 of 0.30 is more than one half.
  CHECK(ids_of(choices(kLogits, {.temperature = 0.5, .top_p = 0.53})) == Ids{1});
  CHECK(ids_of(choices(kLogits, {.temperature = 1, .top_p = 0.53})) == Ids{1, 3});
}

TEST_CASE("of equal logits the lower ids stay") {
  const std::vector<double> equal(6, 0.5);
  CHECK(ids_of(choices(equal, {.temperature = 0})) == Ids{0});
  CHECK(ids_of(choices(equal, {.top_k = 3})) == Ids{0, 1, 2});
  CHECK(ids_of(choices(equal, {.top_p = 0.5})) == Ids{0, 1, 2});
}

TEST_CASE("top-k of one is the most probable token at any seed") {
  for (std::uint64_t seed = 0; seed < 50; ++seed)
    CHECK(Sampler({.top_k = 1}, seed, 0).next(kLogits, 3) == 1);
}

TEST_CASE("probabilities sum to one and no temperature overflows") {
  for (const double temperature : {1e-300, 0.1, 1.0, 1e300}) {
    const std::vector<double> huge{1e30, -1e30, 1e30, 0};
    double sum = 0;
    for (const Choice& choice : choices(huge, {.temperature = temperature})) {
      CHECK(std::isfinite(choice.probability));
      sum += choice.probability;
    }
    CHECK(sum == doctest::Approx(1));
  }
  // Logits whose exponentials are all alike keep their order.
  CHECK(ids_of(choices(std::vector<double>{0, 1}, {.temperature = 1e300, .top_p = 0.4})) == Ids{1});
}

TEST_CASE("a choice depends on seed, sequence and step, and on nothing before it") {
  const Sampler sampler({}, 5, 0);
  Ids forward, backward, other_seed, other_sequence;
  for (int step = 0; step < 64; ++step) {
    forward.push_back(sampler.next(kLogits, step));
    backward.insert(backward.begin(), sampler.next(kLogits, 63 - step));
    other_seed.push_back(Sampler({}, 6, 0).next(kLogits, step));
    other_sequence.push_back(Sampler({}, 5, 1).next(kLogits, step));
  }
  CHECK(forward == backward);
  CHECK(forward != other_seed);
  CHECK(forward != other_sequence);
}

TEST_CASE("ids beyond the vocabulary are never chosen") {
  CHECK(ids_of(choices(kLogits, {.ids = 1})) == Ids{0});
  CHECK(ids_of(choices(kLogits, {.temperature = 0, .ids = 1})) == Ids{0});
  CHECK(choices(kLogits, {.ids = 100}).size() == 4);
}

TEST_CASE("pick finds the choice at every place of the unit interval") {
  const std::vector<Choice> from{{3, 0.25}, {1, 0.75}, {2, 0}};
  CHECK(models::pick(from, 0.2499) == 3);
  CHECK(models::pick(from, 0.25) == 1);
  CHECK(models::pick(from, 0.9999) == 1);
  CHECK(models::pick(from, 1) == 1);  // past the sum: nothing of no probability
}

TEST_CASE("a logit that is not finite names the token and the step") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinite = std::numeric_limits<double>::infinity();
  CHECK_THROWS_WITH_AS(Sampler({.temperature = 0}, 0, 0).next(std::vector<double>{0, nan}, 4),
                       "generate: new token 4: the logit of token 1 is not a number", NumericError);
  CHECK_THROWS_WITH_AS(Sampler({}, 0, 0).next(std::vector<double>{-infinite, 0}, 0),
                       "generate: new token 0: the logit of token 0 is infinite", NumericError);
}
