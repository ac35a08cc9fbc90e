#pragma once
// The factors of the Sparse Transformer and how heads combine them. Source: baselines.md 5.

#include <cstdint>
#include <vector>

#include "attention/exact/exact_operator.h"

namespace fovea::attention {

class SparseFactors {
 public:
  // Throws ConfigError for options that do not go together.
  SparseFactors(const AttentionConfig& config, const config::Node& options);

  // Head h follows rules()[h % rules().size()].
  const std::vector<TileRule>& rules() const { return rules_; }
  Pattern pattern() const;
  // Visible pairs of a mean head; queries are the last ones of the keys.
  double pairs(std::int64_t queries, std::int64_t keys) const;

 private:
  TileRule local() const;                                      // factor A
  TileRule far() const;                                        // factor B
  TileRule columns(std::int32_t from, std::int32_t to) const;  // summary columns of a block
  void repeat(const std::vector<TileRule>& period, int heads);
  double row_pairs(const TileRule& rule, std::int64_t p, std::int64_t keys) const;

  bool causal_, strided_;
  std::int32_t length_, columns_;  // l and c
  std::vector<TileRule> rules_;
};

}  // namespace fovea::attention
