#pragma once
// What the exact attention kernels share: how scores are masked and biased, and how many there are.

#include "core/philox.h"
#include "kernels/dispatch.h"

namespace fovea {

struct TilePlan;  // kernels/tile_plan.h

// S_ij = c(scale <q_i, k_j>) + bias_ij - slope_h |i + (M - N) - j|, or -inf where j is hidden from
// i; c(x) = softcap tanh(x / softcap), or x without a cap. Any view may be empty; strides are free.
struct AttentionScores {
  double scale = 1;
  double softcap = 0;   // 0: none. Source: Gemma 2, arXiv:2408.00118, section 2
  bool causal = false;  // key j is visible to query i iff j <= i + (M - N)
  View key_valid;       // u8 [B,M]: 0 hides a key
  View query_valid;     // u8 [B,N]: 0 makes a row of zeros that sends no gradient
  View query_segments;  // i32 [B,N]: only equal segments see each other; both or none
  View key_segments;    // i32 [B,M]
  View bias;            // [1|B, 1|H, N, M] as q
  View alibi_slopes;    // acc [H]
  double dropout = 0;   // of normalised probabilities; kept ones are divided by 1 - dropout
  Key dropout_key;      // element ((b H + h) N + i) M + j, b counted from the global batch's start
  // The tiles to work on, and a pattern on top of the masks above; null: all that they show. Read
  // during the call only.
  const TilePlan* plan = nullptr;
};

// Gradients to assign; an empty view means "not wanted". dq, dk, dv as q, k, v (unit last stride).
struct AttentionGradients {
  View dq, dk, dv;
  View dbias;  // acc, contiguous, the bias's shape: summed over the axes it broadcasts
};

// Pairs (i, j) that causality leaves visible; all N M without it.
inline double visible_pairs(double queries, double keys, bool causal) {
  if (!causal) return queries * keys;
  if (keys < queries) return keys * (keys + 1) / 2;
  return queries * (keys - queries) + queries * (queries + 1) / 2;
}
inline double visible_pairs(const View& q, const View& k, bool causal) {
  return visible_pairs(static_cast<double>(q.dim[2]), static_cast<double>(k.dim[2]), causal);
}

namespace meta {

// FLOPs of `products` products of [N,M] scores with width d, and of `values` with width dv: those
// of the `pairs` that a head sees.
inline void count_attention(StreamRef stream, const View& q, const View& v, double pairs,
                            double products, double values) {
  auto& cost = *static_cast<CostCounter*>(stream.native);
  const double heads = static_cast<double>(q.dim[0] * q.dim[1]);
  cost.flops += 2 * heads * pairs *
                (products * static_cast<double>(q.dim[3]) + values * static_cast<double>(v.dim[3]));
}

}  // namespace meta

}  // namespace fovea
