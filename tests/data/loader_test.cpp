#include "data/loader.h"

#include <map>
#include <set>

#include <doctest/doctest.h>

#include "core/error.h"

using namespace fovea;
using namespace fovea::data;

namespace {

// Example i holds i in its first token, the epoch in the second, and i + 1 scored targets (at most
// 4).
class Numbers final : public Source {
 public:
  explicit Numbers(std::int64_t size) : size_(size) {}
  std::int64_t size() const override { return size_; }
  int seq_len() const override { return 4; }
  void get(std::int64_t i, std::int64_t epoch, Example& example) const override {
    example.tokens = {static_cast<std::int32_t>(i), static_cast<std::int32_t>(epoch), 7};
    example.targets = {1, 2, kIgnored};
    if (i == 0) example.targets[0] = kIgnored;
  }
  std::int64_t target_tokens(std::int64_t i, std::int64_t) const override { return i == 0 ? 1 : 2; }
  std::string summary() const override { return "numbers"; }
  std::string fingerprint() const override { return "numbers"; }

 private:
  std::int64_t size_;
};

std::int32_t token(const Batch& batch, std::int64_t row, std::int64_t at) {
  return batch.tokens.data<std::int32_t>()[row * batch.tokens.size(1) + at];
}

}  // namespace

TEST_CASE("every epoch shows every example once, in an order of its own") {
  const Numbers source(10);
  const Loader loader(source, {.global_batch = 4, .micro_batch = 2}, 3);
  std::map<std::int32_t, std::vector<std::int32_t>> by_epoch;
  for (std::int64_t step = 0; step < 10;
       ++step) {  // 40 samples, 4 epochs; batches straddle their borders
    for (std::int64_t micro = 0; micro < loader.micro_batches(); ++micro) {
      const Batch batch = loader.at(step, micro);
      for (std::int64_t row = 0; row < 2; ++row)
        by_epoch[token(batch, row, 1)].push_back(token(batch, row, 0));
    }
  }
  REQUIRE(by_epoch.size() == 4);
  for (const auto& [epoch, seen] : by_epoch)
    CHECK(std::set<std::int32_t>(seen.begin(), seen.end()).size() == 10);
  CHECK(by_epoch[0] != by_epoch[1]);
}

TEST_CASE("a batch depends on seed, step and micro-batch, not on what was asked before") {
  const Numbers source(50);
  const Loader loader(source, {.global_batch = 8, .micro_batch = 4}, 3);
  const std::vector<double> first = loader.at(17, 1).tokens.values();
  (void)loader.at(2, 0);
  CHECK(loader.at(17, 1).tokens.values() == first);
  CHECK(loader.at(17, 0).tokens.values() != first);
  CHECK(Loader(source, {.global_batch = 8, .micro_batch = 4}, 4).at(17, 1).tokens.values() !=
        first);
}

TEST_CASE("the size of a micro-batch does not change a step's samples") {
  const Numbers source(50);
  const Loader whole(source, {.global_batch = 8, .micro_batch = 8}, 3),
      halves(source, {.global_batch = 8, .micro_batch = 4}, 3);
  std::vector<double> joined = halves.at(5, 0).tokens.values();
  for (const double value : halves.at(5, 1).tokens.values())
    joined.push_back(value);
  CHECK(whole.at(5, 0).tokens.values() == joined);
  CHECK(halves.at(5, 1).first_sample == 4);
  CHECK(halves.at(5, 1).index == 1);
}

TEST_CASE("target_tokens of a step is the sum over its micro-batches") {
  const Numbers source(5);
  const Loader loader(source, {.global_batch = 6, .micro_batch = 2}, 3);
  for (std::int64_t step = 0; step < 5; ++step) {
    std::int64_t total = 0;
    for (std::int64_t micro = 0; micro < 3; ++micro)
      total += loader.at(step, micro).target_tokens;
    CHECK(loader.target_tokens(step) == total);
  }
}

TEST_CASE("a short example ends in token 0 and ignored targets") {
  const Numbers source(5);
  const Batch batch = EvalLoader(source, 1).at(3);
  CHECK(batch.tokens.values() == std::vector<double>{3, 0, 7, 0});
  CHECK(batch.targets.values() == std::vector<double>{1, 2, -1, -1});
  CHECK(batch.target_tokens == 2);
}

TEST_CASE(
    "evaluation goes through the source once, in order, and pads the tail with ignored rows") {
  const Numbers source(5);
  const EvalLoader loader(source, 3);
  REQUIRE(loader.batches() == 2);
  const Batch tail = loader.at(1);
  CHECK(tail.tokens.shape() == Shape{3, 4});
  CHECK(token(tail, 0, 0) == 3);
  CHECK(token(tail, 1, 0) == 4);
  CHECK(tail.first_sample == 3);
  CHECK(tail.target_tokens == 4);
  for (int at = 8; at < 12; ++at)
    CHECK(tail.targets.data<std::int32_t>()[at] == kIgnored);
  CHECK(loader.at(0).target_tokens + tail.target_tokens == 9);
}

TEST_CASE("batch sizes that do not divide are a config error") {
  const Numbers source(5);
  CHECK_THROWS_AS(Loader(source, {.global_batch = 6, .micro_batch = 4}, 0), ConfigError);
  CHECK_THROWS_AS(Loader(source, {.global_batch = 0, .micro_batch = 4}, 0), ConfigError);
  CHECK_THROWS_AS(EvalLoader(source, 0), ConfigError);
}
