#include "attention/exact/cost.h"

#include <algorithm>

namespace fovea::attention {

namespace {

// Pairs in the tiles that causality does not hide whole.
double tiled_pairs(std::int64_t queries, std::int64_t keys, bool causal) {
  double pairs = 0;
  for (std::int64_t first = 0; first < queries; first += kPlanTile) {
    const std::int64_t rows = std::min<std::int64_t>(kPlanTile, queries - first);
    const std::int64_t last_key = causal ? first + rows - 1 + keys - queries : keys - 1;
    const std::int64_t columns =
        std::clamp<std::int64_t>((last_key / kPlanTile + 1) * kPlanTile, 0, keys);
    pairs += static_cast<double>(rows) * static_cast<double>(last_key < 0 ? 0 : columns);
  }
  return pairs;
}

}  // namespace

Cost dense_cost(const AttentionConfig& config, const ExactChoice& choice, std::int64_t queries,
                std::int64_t keys) {
  const bool causal = is_causal(config);
  const auto n = static_cast<double>(queries), m = static_cast<double>(keys);
  const double pairs = visible_pairs(n, m, causal);
  if (!choice.materialised)
    return exact_cost(config, queries, keys, pairs, tiled_pairs(queries, keys, causal));
  Cost cost = exact_cost(config, queries, keys, pairs, pairs);
  const double h = config.n_head;
  // Scores are stored; dP is formed twice.
  cost.executed_backward = 2 * h * pairs * (2 * config.qk_dim + 3 * config.v_dim);
  cost.bytes_forward += 4 * h * n * m;
  cost.bytes_backward += 4 * h * n * m;
  return cost;
}

Cost exact_cost(const AttentionConfig& config, std::int64_t queries, std::int64_t keys,
                double pairs, double tiled) {
  const auto n = static_cast<double>(queries), m = static_cast<double>(keys);
  const double h = config.n_head, hk = config.n_kv_head, d = config.qk_dim, dv = config.v_dim;
  const double tokens = h * n * (d + dv) + hk * m * (d + dv);
  Cost cost;
  cost.useful_forward = 2 * h * pairs * (d + dv);
  cost.useful_backward = 2 * h * pairs * (3 * d + 2 * dv);
  cost.executed_forward = 2 * h * tiled * (d + dv);
  cost.executed_backward = 2 * h * tiled * (3 * d + 2 * dv);
  cost.bytes_forward = 2 * tokens + 4 * h * n;
  cost.bytes_backward = 4 * tokens + 2 * h * n * dv + 8 * h * n;
  return cost;
}

double tiled_pairs(const Pattern& pattern, const AttentionConfig& config, std::int64_t queries,
                   std::int64_t keys) {
  const PlanShape shape{1, config.n_head, config.n_kv_head, queries, keys, config.causal};
  Stream nothing_runs(kMeta);
  return AttentionPlan(shape, pattern(shape), kMeta, nothing_runs).count_tiled_pairs();
}

}  // namespace fovea::attention
