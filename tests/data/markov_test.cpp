#include "data/markov.h"

#include <algorithm>
#include <cmath>

#include <doctest/doctest.h>

#include "core/error.h"

using namespace fovea;
using namespace fovea::data;

TEST_CASE("markov: every step goes to a successor, and the measured entropy is the stated one") {
  const MarkovSource source({}, 256, Split::train, 4);
  double counts[4] = {};
  Example example;
  for (std::int64_t i = 0; i < 200; ++i) {
    source.get(i, 0, example);
    for (std::size_t t = 0; t < 256; ++t) {
      if (t + 1 < 256) CHECK(example.targets[t] == example.tokens[t + 1]);
      const std::int32_t* next = source.successors(example.tokens[t]);
      const auto rank = std::find(next, next + 4, example.targets[t]) - next;
      REQUIRE(rank < 4);
      ++counts[rank];
    }
  }
  double entropy = 0;
  for (const double count : counts)
    entropy -= count / 51200 * std::log(count / 51200);
  CHECK(entropy == doctest::Approx(MarkovSource::entropy()).epsilon(0.01));
}

TEST_CASE("markov: examples are pure; splits share the table but no example") {
  const MarkovSource train({}, 32, Split::train, 4), again({}, 32, Split::train, 4),
      held_out({}, 32, Split::validation, 4);
  Example a, b;
  train.get(5, 0, a);
  again.get(9, 0, b);
  again.get(5, 0, b);
  CHECK(a.tokens == b.tokens);
  held_out.get(5, 0, b);
  CHECK(a.tokens != b.tokens);
  for (std::int32_t state = 0; state < 64; ++state) {
    CHECK(std::equal(train.successors(state), train.successors(state) + 4,
                     held_out.successors(state)));
  }
  CHECK_THROWS_AS(MarkovSource({.vocab = 3}, 32, Split::train, 4), ConfigError);
}
