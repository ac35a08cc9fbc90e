#pragma once
// The factors of the Sparse Transformer and how heads combine them. Source: baselines.md 5.

#include <cstdint>
#include <vector>

#include "attention/exact/exact_operator.h"
#include "attention/sparse_transformer/slots.h"

namespace fovea::attention {

class SparseFactors {
 public:
  // Throws ConfigError for options that do not go together.
  SparseFactors(const AttentionConfig& config, const config::Node& options);

  // Head h follows rules()[h % rules().size()], in the order of tokens.
  const std::vector<TileRule>& rules() const { return rules_; }
  // The same for calls; where all heads that share keys are far alike, in the order of slots.h.
  Pattern pattern() const;
  SlotOrders orders() const;
  // Visible pairs of a mean head; queries are the last ones of the keys.
  double pairs(std::int64_t queries, std::int64_t keys) const;
  // Pairs of a mean head in the tiles that a call of this shape works on.
  double tiled_pairs(const PlanShape& shape) const;

 private:
  TileRule local() const;                                      // factor A
  TileRule far() const;                                        // factor B
  TileRule columns(std::int32_t from, std::int32_t to) const;  // summary columns of a block
  void repeat(const std::vector<TileRule>& period, int heads);
  bool reorders(const PlanShape& shape) const;
  std::vector<SlotRule> slot_rules(const PlanShape& shape) const;
  std::int64_t far_below(const TileRule& rule, std::int64_t p, std::int64_t end) const;
  double tiled_columns(const TileRule& rule, std::int64_t tokens) const;
  double row_pairs(const TileRule& rule, std::int64_t p, std::int64_t keys) const;

  bool causal_, strided_;
  std::int32_t length_, columns_;  // l and c
  std::vector<TileRule> rules_;
};

}  // namespace fovea::attention
