#pragma once
// How the CPU's attention walks a TilePlan: key tiles in ascending order, whether full or partial,
// so that a row's sums have the order they have without a plan.

#include "kernels/cpu/tile.h"
#include "kernels/tile_plan.h"

namespace fovea::cpu::FOVEA_ISA {

// What hides scores of a tile: masks of tokens and causality; of a plan's full tile masks of tokens
// alone; of its partial one the plan's words, which account for everything.
enum class TileKind { by_masks, full, partial };

inline Ints bit_set(Ints words, int bit) {
  return (words << (31 - bit)) >> 31;
}
inline std::int32_t bit_set(std::int32_t word, int bit) {
  return (word << (31 - bit)) >> 31;
}

struct TileMask {
  TileKind kind = TileKind::by_masks;
  alignas(64) std::int32_t low[kPlanTile], high[kPlanTile];  // of each query's word, if partial
  const std::int32_t* half(std::int64_t key) const { return key < 32 ? low : high; }
};

class PlanWalk {
 public:
  PlanWalk(const AttentionScores& scores, std::int64_t queries, std::int64_t keys,
           std::int64_t heads, std::int64_t kv_heads)
      : plan_(scores.plan), queries_(queries), keys_(keys) {
    if (plan_ != nullptr) sight_ = tile_sight(*plan_, scores, queries, keys, heads, kv_heads);
  }

  const std::int32_t* query_order(std::int64_t b, std::int64_t h) const {
    const OrderRows& rows = sight_.query_order;
    return rows.at == nullptr ? nullptr : rows.at + b * rows.batch + h * rows.head;
  }
  const std::int32_t* key_order(std::int64_t b, std::int64_t kv) const {
    const OrderRows& rows = sight_.key_order;
    return rows.at == nullptr ? nullptr : rows.at + b * rows.batch + kv * rows.head;
  }
  std::int64_t query_length(std::int64_t b, std::int64_t h) const {
    const std::int32_t* lengths = plan_ == nullptr ? nullptr : sight_.rule(h).query_lengths;
    return lengths == nullptr ? queries_ : lengths[b];
  }
  std::int64_t key_length(std::int64_t b, std::int64_t h) const {
    const std::int32_t* lengths = plan_ == nullptr ? nullptr : sight_.rule(h).key_lengths;
    return lengths == nullptr ? keys_ : lengths[b];
  }

  // Calls fn(key tile, mask) in ascending order: for all tiles, or for those the plan lists.
  template <class F>
  void for_key_tiles(std::int64_t b, std::int64_t h, std::int64_t query_tile, F&& fn) const {
    TileMask mask;
    if (plan_ == nullptr) {
      for (std::int64_t key_tile = 0; key_tile < plan_tiles(keys_); ++key_tile)
        fn(key_tile, mask);
      return;
    }
    const std::int64_t one = b % plan_->batches * plan_->heads + h % plan_->heads;
    const std::int32_t* begin = plan_->begin.ptr<std::int32_t>() + one * plan_->begin.dim[1];
    const std::int32_t* tiles =
        plan_->key_tiles.ptr<std::int32_t>() + one * plan_->key_tiles.dim[1];
    const std::int32_t split =
        begin[query_tile] + plan_->full.ptr<std::int32_t>()[one * plan_->full.dim[1] + query_tile];
    std::int32_t full = begin[query_tile], partial = split;
    while (full < split || partial < begin[query_tile + 1]) {
      const bool next_is_full =
          full < split && (partial == begin[query_tile + 1] || tiles[full] < tiles[partial]);
      const std::int32_t key_tile = tiles[next_is_full ? full++ : partial++];
      mask.kind = next_is_full ? TileKind::full : TileKind::partial;
      if (!next_is_full) look(mask, b, h, query_tile, key_tile);
      fn(key_tile, mask);
    }
  }

 private:
  void look(TileMask& mask, std::int64_t b, std::int64_t h, std::int64_t query_tile,
            std::int64_t key_tile) const {
    for (std::int64_t i = 0; i < kPlanTile; ++i) {
      const std::uint64_t word = sight_.row(b, h, query_tile * kPlanTile + i, key_tile);
      mask.low[i] = static_cast<std::int32_t>(static_cast<std::uint32_t>(word));
      mask.high[i] = static_cast<std::int32_t>(static_cast<std::uint32_t>(word >> 32));
    }
  }

  const TilePlan* plan_;
  std::int64_t queries_, keys_;
  TileSight sight_;
};

}  // namespace fovea::cpu::FOVEA_ISA
