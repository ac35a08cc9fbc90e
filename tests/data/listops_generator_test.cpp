#include "data/listops_generator.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <doctest/doctest.h>

#include "core/error.h"
#include "temp_folder.h"

using namespace fovea;
using namespace fovea::data;
using fovea::test::contains;
using fovea::test::message_of;

namespace {

ListOpsConfig small_config() {
  ListOpsConfig config;
  config.min_length = 5;
  config.max_length = 40;
  config.max_depth = 4;
  config.max_args = 4;
  return config;
}

int depth_of(const listops::Expression& tree) {
  int depth = 0, deepest = 0;
  for (const std::uint8_t id : tree) {
    if (id < listops::kClose) ++depth;
    deepest = std::max(deepest, depth + (id >= listops::kDigit ? 1 : 0));
    if (id == listops::kClose) --depth;
  }
  return deepest;
}

}  // namespace

TEST_CASE("listops: trees have the published distribution of lengths, depths and labels") {
  constexpr std::size_t kTrees = 20000;  // as many as the tolerances of data.md 5.2 are made for
  const listops::Generator generator(ListOpsConfig{}, 1);
  const std::vector<std::uint64_t> trees = generator.first(kTrees, 2);
  REQUIRE(trees.size() == kTrees);
  const double acceptance = static_cast<double>(kTrees) / static_cast<double>(trees.back() + 1);
  CHECK(std::abs(acceptance - 0.0827) < 0.0025);
  std::vector<std::size_t> lengths;
  std::vector<double> labels(10, 0);
  double total = 0, trivial = 0;
  listops::Expression tree;
  int shallowest = 10;
  for (const std::uint64_t number : trees) {
    const int value = generator.draw(number, tree);
    lengths.push_back(tree.size());
    total += static_cast<double>(tree.size());
    labels[static_cast<std::size_t>(value)] += 1.0 / kTrees;
    shallowest = std::min(shallowest, depth_of(tree));
    constexpr int kAnswers[] = {-1, 0, 9, 4, 0};
    trivial += kAnswers[tree.front()] == value ? 1.0 / kTrees : 0;
  }
  std::sort(lengths.begin(), lengths.end());
  CHECK(lengths.front() > 500);
  CHECK(lengths.back() < 2000);
  CHECK(std::abs(total / kTrees - 1033) < 12);
  CHECK(std::abs(static_cast<double>(lengths[kTrees / 2]) - 950) <= 15);
  CHECK(std::abs(static_cast<double>(lengths[kTrees / 20]) - 538) <= 5);
  CHECK(std::abs(static_cast<double>(lengths[kTrees - kTrees / 20]) - 1800) <= 25);
  CHECK(shallowest == 10);
  CHECK(std::abs(labels[0] - 0.169) < 0.011);
  CHECK(std::abs(labels[9] - 0.168) < 0.011);
  for (int digit = 1; digit < 9; ++digit) {
    CHECK(labels[static_cast<std::size_t>(digit)] > 0.072 - 0.008);
    CHECK(labels[static_cast<std::size_t>(digit)] < 0.090 + 0.008);
  }
  CHECK(std::abs(trivial - 0.361) < 4 * std::sqrt(0.361 * 0.639 / kTrees));
}

TEST_CASE(
    "listops: a list's arity, operators and digits are uniform, and one node in four is a list") {
  ListOpsConfig config;
  config.min_length = 0;
  config.max_length = 100000;
  config.max_depth = 2;  // lists of digits, unless a digit
  const listops::Generator generator(config, 3);
  constexpr int kDraws = 100000;
  std::vector<double> arity(11, 0), op(5, 0), digit(10, 0);
  double lists = 0, digits = 0;
  listops::Expression tree;
  for (int i = 0; i < kDraws; ++i) {
    generator.draw(static_cast<std::uint64_t>(i), tree);
    for (const std::uint8_t id : tree) {
      if (id < listops::kDigit) continue;
      ++digits;
      ++digit[static_cast<std::size_t>(id - listops::kDigit)];
    }
    if (tree.size() == 1) continue;
    ++lists;
    ++arity[tree.size() - 2];
    ++op[tree.front()];
  }
  // Five standard errors: a false alarm of one in two million.
  const auto check = [](double count, double of, double p) {
    CHECK(std::abs(count / of - p) < 5 * std::sqrt(p * (1 - p) / of));
  };
  check(lists, kDraws, 0.25);
  for (std::size_t n = 2; n <= 10; ++n)
    check(arity[n], lists, 1.0 / 9);
  for (std::size_t o = listops::kMin; o <= listops::kSum; ++o)
    check(op[o], lists, 0.25);
  for (const double count : digit)
    check(count, digits, 0.1);
}

TEST_CASE("listops: a tree's value is what reading its text gives") {
  const listops::Generator generator(small_config(), 7);
  listops::Expression tree, again;
  for (const std::uint64_t number : generator.first(2000, 1)) {
    const int value = generator.draw(number, tree);
    CHECK(listops::parse(listops::bracketed_text(tree), again) == value);
    CHECK(again == tree);
  }
}

TEST_CASE("listops: the trees are those of the seed, on any number of threads and for any count") {
  const listops::Generator generator(small_config(), 7), other(small_config(), 8);
  const std::vector<std::uint64_t> trees = generator.first(5000, 1);
  CHECK(generator.first(5000, 3) == trees);
  const std::vector<std::uint64_t> fewer = generator.first(50, 2);
  CHECK(std::equal(fewer.begin(), fewer.end(), trees.begin()));
  listops::Expression a, b;
  int equal = 0;
  for (std::uint64_t number = 0; number < 100; ++number) {
    if (generator.draw(number, a) < 0 || other.draw(number, b) < 0) continue;
    equal += a == b ? 1 : 0;
  }
  CHECK(equal < 3);
}

TEST_CASE("listops: no tree counts twice, and settings with too few of them are refused") {
  ListOpsConfig config;
  config.min_length = 3;
  config.max_length = 5;  // "[OP a b ]" only: 400 trees
  config.max_depth = 2;
  config.max_args = 2;
  const listops::Generator generator(config, 1);
  std::set<listops::Expression> seen;
  listops::Expression tree;
  for (const std::uint64_t number : generator.first(400, 2)) {
    generator.draw(number, tree);
    CHECK(tree.size() == 4);
    CHECK(seen.insert(tree).second);
  }
  CHECK_THROWS_AS(generator.first(401, 2), ConfigError);
  CHECK(contains(message_of([&] { generator.first(401, 2); }), "trees only 400 differ"));
}

TEST_CASE("listops: settings that no tree can meet say what must change") {
  const auto error = [](auto change) {
    ListOpsConfig config;
    change(config);
    CHECK_THROWS_AS(listops::Generator(config, 0), ConfigError);
    return message_of([&] { listops::Generator(config, 0); });
  };
  CHECK(error([](ListOpsConfig& c) { c.max_length = 501; }) ==
        "data.listops.min_length and max_length are 500 and 501, but some length must lie between "
        "them, neither included");
  CHECK(contains(error([](ListOpsConfig& c) { c.max_depth = 0; }), "max_depth is 0"));
  CHECK(contains(error([](ListOpsConfig& c) { c.max_args = 1; }), "max_args is 1"));
  CHECK(contains(error([](ListOpsConfig& c) { c.max_args = 1000; }), "must be in [2, 64]"));
}
