#pragma once
// Which 64 x 64 tiles of scores exact attention works on: a list of key tiles for every query tile,
// built on the device from a rule. A kernel walks the lists and never sees an N x M mask.
// Source: baselines.md 4.

#include "kernels/attention_scores.h"
#include "kernels/tile_rule.h"

namespace fovea {

// Tiles are 64 x 64: a row of a tile is one 64-bit word of visibility, 64 is what tensor-core and
// CPU kernels tile by, and smaller tiles would cost more in lists than they save in scores. A
// kernel with 128 rows walks two lists at once.
//
// Counted in slots: slot s of the queries is query s, or query_order[s] if there is an order. Only
// the lists and a rule `in_slots` speak of slots: q, k, v, o, lse, their gradients, bias and
// dropout stay in token order, and kernels gather and scatter rows through the order.
//
// Sample b and query head h use list (b % batches) heads + h % heads and rules[h % heads]: so 1 is
// shared, 2 alternates heads, and H is one a head. All views contiguous, on one device.
struct TilePlan {
  std::int32_t batches = 1, heads = 1;
  // Whether the lists and the full tiles account for scores' valid and segments. If not, kernels
  // apply those in full tiles too; so a plan of a pattern may be kept while padding changes.
  // Causality must be the same when a plan is built and when it is used.
  bool counts_tokens = false;
  double pairs = -1;  // visible pairs of a mean (sample, head), for counting FLOPs; -1: unknown

  View rules;  // u8 [heads, sizeof(TileRule)]

  // Query tile t works on key_tiles[begin[t] .. begin[t + 1]): first full[t] full ones, of which
  // every pair of real tokens is visible, then partial ones. Ascending in each part. A tile in
  // which nothing is visible is not listed.
  View begin;      // i32 [batches heads, query tiles + 1]
  View full;       // i32 [batches heads, query tiles]
  View key_tiles;  // i32 [batches heads, capacity]

  // The transpose: key tile t is met by query_tiles[key_begin[t] .. key_begin[t + 1]).
  View key_begin;    // i32 [batches heads, key tiles + 1]
  View key_full;     // i32 [batches heads, key tiles]
  View query_tiles;  // i32 [batches heads, capacity]

  // Entries that each list needs. Above the capacity, the list is cut and whoever built the plan
  // must not use it.
  View needed;  // i32 [batches heads]

  View query_order;  // i32 [1|B, 1|H, N], a permutation of the queries in each row; or empty
  View key_order;    // i32 [1|B, 1|Hk, M]
};

// Assigns the lists and `needed` from rules, orders and scores: its causality, and if
// counts_tokens its valid and segments (batches must be B then). `query_heads` and `kv_heads` are
// those of the calls: with an order for each head, heads must be H. No
// allocation but of scratch, no synchronisation: capturable. Time O(query tiles x key tiles), a few
// operations for each tile out of reach and about 64 rows' words for one in reach; on CUDA less
// where sorted tokens see windows or neighbouring blocks.
FOVEA_KERNEL(tile_plan_build, StreamRef, const TilePlan& plan, const AttentionScores& scores,
             std::int64_t queries, std::int64_t keys, std::int64_t query_heads,
             std::int64_t kv_heads)

// bits[b, t] bit c = flags[b, 64 t + c] != 0, for TileRule's flags. flags u8 [B,N], bits i64
// [B, ceil(N / 64)].
FOVEA_KERNEL(pack_flags, StreamRef, const View& bits, const View& flags)

[[gnu::always_inline]] inline std::int64_t plan_tiles(std::int64_t tokens) {
  return (tokens + kPlanTile - 1) / kPlanTile;
}

// Entries that a list of `rule` never exceeds, whatever the masks and the causality; `ordered`: the
// plan has orders. Linear in the tokens for windows, blocks and few global tokens.
[[gnu::always_inline]] inline std::int64_t plan_capacity(const TileRule& rule, std::int64_t queries,
                                                         std::int64_t keys, bool ordered) {
  const std::int64_t rows = plan_tiles(queries), columns = plan_tiles(keys);
  const bool anywhere = !rule.patterned() || rule.stride > 0 || rule.period > 0 ||
                        rule.stair_width > 0 || rule.key_flags != nullptr ||
                        rule.query_flags != nullptr;
  if (anywhere || (ordered && !rule.in_slots)) return rows * columns;
  // Tiles that `span` consecutive tokens touch.
  const auto touched = [](std::int64_t span) {
    return span <= 0 ? std::int64_t{0} : (span + kPlanTile - 2) / kPlanTile + 1;
  };
  std::int64_t a_row = touched(rule.first_keys), whole_rows = touched(rule.first_queries);
  if (rule.last_keys != kNoToken) a_row += touched(keys - rule.last_keys);
  if (rule.last_queries != kNoToken) whole_rows += touched(keys - rule.last_queries);
  if (rule.left >= 0)
    a_row += touched(kPlanTile + std::int64_t{rule.left} + std::int64_t{rule.right});
  const std::int64_t blocks = (kPlanTile - 2) / rule.block + 2;  // that a query tile touches
  if (rule.block_left >= 0)
    a_row += touched((blocks + rule.block_left + rule.block_right) * rule.block);
  if (rule.list != nullptr) a_row += blocks * rule.list_width * touched(rule.block);
  if (a_row > columns) a_row = columns;
  const std::int64_t most = rows * a_row + whole_rows * columns;
  return most < rows * columns ? most : rows * columns;
}

// What a call with `scores` (and scores.plan) sees; on the host, for the device.
[[gnu::always_inline]] inline TileSight tile_sight(const TilePlan& plan,
                                                   const AttentionScores& scores,
                                                   std::int64_t queries, std::int64_t keys,
                                                   std::int64_t query_heads, std::int64_t kv_heads,
                                                   bool tokens = true) {
  TileSight s;
  s.rules = plan.rules.ptr<TileRule>();
  s.heads = plan.heads;
  s.group = static_cast<std::int32_t>(kv_heads > 0 ? query_heads / kv_heads : 1);
  s.queries = static_cast<std::int32_t>(queries);
  s.keys = static_cast<std::int32_t>(keys);
  s.causal = scores.causal;
  const auto order = [](const View& view) {
    OrderRows rows;
    if (!view) return rows;
    rows.at = view.ptr<std::int32_t>();
    rows.batch = view.dim[0] == 1 ? 0 : view.stride[0];
    rows.head = view.dim[1] == 1 ? 0 : view.stride[1];
    return rows;
  };
  s.query_order = order(plan.query_order);
  s.key_order = order(plan.key_order);
  if (!tokens) return s;
  s.query_valid = {scores.query_valid.ptr<std::uint8_t>(), scores.query_valid.stride[0],
                   scores.query_valid.stride[1]};
  s.key_valid = {scores.key_valid.ptr<std::uint8_t>(), scores.key_valid.stride[0],
                 scores.key_valid.stride[1]};
  s.query_segments = {scores.query_segments.ptr<std::int32_t>(), scores.query_segments.stride[0],
                      scores.query_segments.stride[1]};
  s.key_segments = {scores.key_segments.ptr<std::int32_t>(), scores.key_segments.stride[0],
                    scores.key_segments.stride[1]};
  return s;
}

}  // namespace fovea
