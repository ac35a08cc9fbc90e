#include "core/random.h"

#include <cmath>
#include <set>
#include <vector>

#include <doctest/doctest.h>

using namespace fovea;

namespace {

bool equal(const Philox4& a, std::uint32_t b0, std::uint32_t b1, std::uint32_t b2,
           std::uint32_t b3) {
  return a.v[0] == b0 && a.v[1] == b1 && a.v[2] == b2 && a.v[3] == b3;
}

}  // namespace

TEST_CASE("philox4x32 gives the known answers of Random123") {
  constexpr std::uint64_t kOnes = ~std::uint64_t{0};
  CHECK(equal(philox4x32(0, 0, 0), 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8));
  CHECK(equal(philox4x32(kOnes, kOnes, kOnes), 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd));
  CHECK(equal(philox4x32(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e), 0xd16cfe09,
              0x94fdcceb, 0x5001e420, 0x24126ea1));
}

TEST_CASE("random bits are a pure function of seed, path, step and element") {
  StepState at{.step = 3};
  const Key key{1, hash_name("a"), &at}, other_seed{2, hash_name("a"), &at},
      other_path{1, hash_name("b"), &at};
  const std::uint32_t bits = random_bits(key, 7);
  CHECK(random_bits(key, 7) == bits);
  CHECK(random_bits(key, 8) != bits);
  CHECK(random_bits(other_seed, 7) != bits);
  CHECK(random_bits(other_path, 7) != bits);
  at.step = 4;
  CHECK(random_bits(key, 7) != bits);
  at.step = 0;
  CHECK(random_bits(key, 7) == random_bits(Key{1, hash_name("a"), nullptr}, 7));
}

TEST_CASE("elements 4 i to 4 i + 3 come out of one Philox call") {
  const Key key{5, 6, nullptr};
  const Philox4 four = philox4x32(mix64(5, 6), 2, 0);
  for (std::uint64_t i = 0; i < 4; ++i)
    CHECK(random_bits(key, 8 + i) == four.v[i]);
}

TEST_CASE("uniform floats lie strictly between 0 and 1") {
  CHECK(uniform_float(0) > 0);
  CHECK(uniform_float(~std::uint32_t{0}) < 1);
}

TEST_CASE("names hash by FNV-1a") {
  CHECK(hash_name("") == 0xcbf29ce484222325ull);
  CHECK(hash_name("a") == 0xaf63dc4c8601ec8cull);
  CHECK(hash_name("foobar") == 0x85944171f73967e8ull);
}

TEST_CASE("a named stream has the moments of its distributions") {
  const NamedStream draws(7, "weights");
  constexpr int kCount = 20000;
  double mean = 0, square = 0, uniform = 0, cube = 0;
  for (std::uint64_t i = 0; i < kCount; ++i) {
    const double x = draws.normal(i), u = draws.uniform(i);
    CHECK_UNARY(u > 0 && u < 1);
    mean += x / kCount;
    square += x * x / kCount;
    cube += x * x * x / kCount;
    uniform += u / kCount;
  }
  // Four standard errors.
  CHECK(std::fabs(mean) < 4 / std::sqrt(kCount));
  CHECK(std::fabs(square - 1) < 4 * std::sqrt(2.0 / kCount));
  CHECK(std::fabs(cube) < 4 * std::sqrt(15.0 / kCount));
  CHECK(std::fabs(uniform - 0.5) < 4 * std::sqrt(1 / 12.0 / kCount));
}

TEST_CASE("below reaches every value of its range evenly and nothing outside") {
  const NamedStream draws(1, "below");
  std::vector<int> counts(7);
  for (std::uint64_t i = 0; i < 7000; ++i)
    ++counts.at(draws.below(i, 7));
  for (const int count : counts)
    CHECK(std::abs(count - 1000) < 120);
  CHECK(draws.below(0, 1) == 0);
}

TEST_CASE("draws of a named stream do not depend on what was drawn before") {
  const NamedStream a(1, "x"), b(1, "x");
  for (std::uint64_t i = 0; i < 10; ++i)
    a.normal(i);
  CHECK(a.normal(3) == b.normal(3));
  CHECK(a.bits64(3) == b.bits64(3));
  CHECK(NamedStream(1, "y").bits64(3) != a.bits64(3));
}

TEST_CASE("a permutation is a bijection for every size") {
  for (const std::uint64_t n : {1, 2, 3, 4, 5, 15, 16, 17, 64, 1000, 4095, 4096, 4097}) {
    const Permutation order(n, 3, "shuffle");
    std::vector<char> seen(n);
    bool valid = true;
    for (std::uint64_t i = 0; i < n; ++i) {
      const std::uint64_t at = order.at(i);
      valid = valid && at < n && !seen[at];
      if (at < n) seen[at] = 1;
    }
    CHECK(valid);
  }
}

TEST_CASE("permutations of other seeds and names are other permutations, and mix near neighbours") {
  const Permutation a(1000, 3, "shuffle"), b(1000, 4, "shuffle"), c(1000, 3, "other");
  int same_seed = 0, same_name = 0, fixed = 0, steps = 0;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    same_seed += a.at(i) == b.at(i);
    same_name += a.at(i) == c.at(i);
    fixed += a.at(i) == i;
    steps += i > 0 && a.at(i) == a.at(i - 1) + 1;
  }
  for (const int coincidences : {same_seed, same_name, fixed, steps})
    CHECK(coincidences < 10);
}
