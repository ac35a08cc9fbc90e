#pragma once
// BigBird's blocks: global ones, a window, and random ones that are drawn once. Source:
// baselines.md 7.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "attention/exact/exact_operator.h"

namespace fovea::attention {

class BigBirdPattern {
 public:
  // Throws ConfigError for options that do not go together.
  BigBirdPattern(const AttentionConfig& config, const config::Node& options);

  // Whether exact attention stands in for the pattern, and why; "" if it was asked for.
  bool is_exact() const { return exact_; }
  const std::string& why_exact() const { return why_exact_; }
  std::int64_t longest() const { return longest_; }  // max_len
  std::int64_t blocks() const { return blocks_; }
  std::int64_t random_blocks() const { return random_; }

  // Random blocks of every head and query block, i32 [H, blocks, random_blocks] on the host; -1: no
  // block. A row's depend on its head, its place and what it may choose from: rows of a shorter
  // causal pattern are those of a longer one.
  void draw(const Tensor& into, std::uint64_t seed, std::string_view name) const;
  // Rules for `lists`, which are such a tensor, anywhere.
  std::vector<PlanRule> rules(const PlanShape& shape, const Tensor& lists) const;

  // Visible pairs of a mean head; queries are the last ones of the keys. With fewer tokens than
  // max_len the expectation over the draws.
  double pairs(std::int64_t queries, std::int64_t keys) const;

 private:
  // What a row chooses from: blocks first .. last without those in `without`, ascending.
  struct Choice {
    std::int64_t first = 1, last = 0;
    std::vector<std::int64_t> without;
    std::int64_t count() const;
    std::int64_t count_below(std::int64_t block) const;  // of those, blocks < block
  };
  Choice choice_of(std::int64_t row) const;
  double row_pairs(std::int64_t row, std::int64_t p, std::int64_t keys) const;

  bool causal_, exact_ = false;
  std::string why_exact_;
  std::int64_t block_, random_, window_, range_, longest_, blocks_;
};

}  // namespace fovea::attention
