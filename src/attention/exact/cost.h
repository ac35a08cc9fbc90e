#pragma once
// Costs of exact attention, with a pattern or without. Source: baselines.md 20.

#include "attention/exact/exact_operator.h"

namespace fovea::attention {

// Of one sample without a pattern, by either kernel.
Cost dense_cost(const AttentionConfig& config, const ExactChoice& choice, std::int64_t queries,
                std::int64_t keys);
// Of one sample, tiled: `pairs` of a mean head are visible, `tiled` lie in tiles that are worked
// on.
Cost exact_cost(const AttentionConfig& config, std::int64_t queries, std::int64_t keys,
                double pairs, double tiled);
// Pairs of a mean head in the tiles that a pattern lists.
double tiled_pairs(const Pattern& pattern, const AttentionConfig& config, std::int64_t queries,
                   std::int64_t keys);

}  // namespace fovea::attention
