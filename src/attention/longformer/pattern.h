#pragma once
// Longformer's windows and its listed global tokens. Source: baselines.md 6.

#include <cstdint>
#include <vector>

#include "attention/exact/exact_operator.h"

namespace fovea::attention {

class LongformerPattern {
 public:
  // Throws ConfigError for lists that do not fit the model.
  LongformerPattern(const AttentionConfig& config, const config::Node& options);

  // The windows alone: head h follows windows()[h % windows().size()].
  const std::vector<TileRule>& windows() const { return windows_; }
  // Listed global positions, ascending. They are one prefix, or kept as flags.
  const std::vector<std::int64_t>& globals() const { return globals_; }
  // Whether one of the last `queries` of `keys` tokens is listed.
  bool meets_global(std::int64_t queries, std::int64_t keys) const;

  // Windows and listed global keys, for the rows of all others.
  Pattern local_pattern() const;
  // Everything, for the rows of listed tokens; nothing for others.
  Pattern global_pattern() const;

  // Visible pairs of a mean head, of the rows that each pattern is for. Queries are the last ones
  // of the keys.
  double local_pairs(std::int64_t queries, std::int64_t keys) const;
  double global_pairs(std::int64_t queries, std::int64_t keys) const;

 private:
  bool is_prefix() const;
  bool is_global(std::int64_t position) const;

  bool causal_;
  std::vector<TileRule> windows_;
  std::vector<std::int64_t> globals_;
};

}  // namespace fovea::attention
