#include "kernels/tile_plan.h"

#include "core/parallel.h"
#include "kernels/cpu/lanes.h"

namespace fovea::cpu::FOVEA_ISA {

namespace {

// No standard containers here: their functions would be shared between instruction sets.

enum class Seen { none, some, all };

Seen classify(const TileSight& sight, std::int64_t sample, std::int64_t head,
              std::int64_t query_tile, std::int64_t key_tile) {
  if (!sight.reaches(sample, head, query_tile, key_tile)) return Seen::none;
  const std::int64_t first = query_tile * kPlanTile;
  const std::int64_t end =
      first + kPlanTile < sight.queries ? first + kPlanTile : std::int64_t{sight.queries};
  const std::uint64_t real = sight.real_keys(key_tile);
  std::uint64_t any = 0, every = real;
  for (std::int64_t slot = first; slot < end; ++slot) {
    const std::uint64_t word = sight.row(sample, head, slot, key_tile);
    any |= word;
    every &= word;
    if (any != 0 && every != real) return Seen::some;
  }
  return any == 0 ? Seen::none : Seen::all;
}

// One direction's lists of one (batch, head) of a plan.
struct Lists {
  std::int32_t *begin, *full, *tiles;
  std::int64_t count, capacity;

  Lists(std::int64_t one, const View& begins, const View& fulls, const View& entries)
      : begin(begins.ptr<std::int32_t>() + one * begins.dim[1]),
        full(fulls.ptr<std::int32_t>() + one * fulls.dim[1]),
        tiles(entries.ptr<std::int32_t>() + one * entries.dim[1]),
        count(fulls.dim[1]),
        capacity(entries.dim[1]) {}

  // From the number of entries of list t in begin[t + 1] to where it begins, cut at the capacity.
  // Returns the sum of the numbers.
  std::int64_t place() const {
    std::int64_t sum = 0;
    begin[0] = 0;
    for (std::int64_t t = 0; t < count; ++t) {
      sum += begin[t + 1];
      begin[t + 1] = static_cast<std::int32_t>(sum < capacity ? sum : capacity);
      const std::int32_t room = begin[t + 1] - begin[t];
      full[t] = full[t] < room ? full[t] : room;
    }
    return sum;
  }
};

struct Build {
  const TilePlan& plan;
  TileSight sight;
  std::int64_t query_tiles, key_tiles;

  Lists by_query(std::int64_t one) const { return {one, plan.begin, plan.full, plan.key_tiles}; }
  Lists by_key(std::int64_t one) const {
    return {one, plan.key_begin, plan.key_full, plan.query_tiles};
  }

  // Calls fn(key tile, all of it is seen) in ascending order.
  template <class F>
  void for_seen(std::int64_t one, std::int64_t query_tile, F&& fn) const {
    for (std::int64_t key_tile = 0; key_tile < key_tiles; ++key_tile) {
      const Seen seen = classify(sight, one / plan.heads, one % plan.heads, query_tile, key_tile);
      if (seen != Seen::none) fn(static_cast<std::int32_t>(key_tile), seen == Seen::all);
    }
  }
  void count(std::int64_t one, std::int64_t query_tile) const {
    const Lists to = by_query(one);
    std::int32_t tiles = 0, full = 0;
    for_seen(one, query_tile, [&](std::int32_t /*tile*/, bool all) {
      tiles += 1;
      full += all ? 1 : 0;
    });
    to.begin[query_tile + 1] = tiles;
    to.full[query_tile] = full;
  }
  void fill(std::int64_t one, std::int64_t query_tile) const {
    const Lists to = by_query(one);
    const std::int32_t end = to.begin[query_tile + 1];
    std::int32_t full = to.begin[query_tile], partial = full + to.full[query_tile];
    for_seen(one, query_tile, [&](std::int32_t tile, bool all) {
      std::int32_t& at = all ? full : partial;
      if (at < end) to.tiles[at] = tile;
      at += 1;
    });
  }
  // Query tiles come in ascending order, so every key tile's list is ascending too.
  void transpose(std::int64_t one) const {
    const Lists from = by_query(one), to = by_key(one);
    Scratch<std::int32_t> next(2 * key_tiles + 1);
    std::int32_t *full = next.data(), *partial = full + key_tiles;
    for (std::int64_t t = 0; t < key_tiles; ++t)
      to.begin[t + 1] = to.full[t] = 0;
    for_entries(from, [&](std::int32_t /*query*/, std::int32_t key, bool all) {
      to.begin[key + 1] += 1;
      to.full[key] += all ? 1 : 0;
    });
    to.place();
    for (std::int64_t t = 0; t < key_tiles; ++t) {
      full[t] = to.begin[t];
      partial[t] = full[t] + to.full[t];
    }
    for_entries(from, [&](std::int32_t query, std::int32_t key, bool all) {
      to.tiles[(all ? full : partial)[key]++] = query;
    });
  }
  template <class F>
  static void for_entries(const Lists& from, F&& fn) {
    for (std::int32_t t = 0; t < from.count; ++t) {
      for (std::int32_t e = from.begin[t]; e < from.begin[t + 1]; ++e)
        fn(t, from.tiles[e], e < from.begin[t] + from.full[t]);
    }
  }
};

}  // namespace

void tile_plan_build(StreamRef stream, const TilePlan& plan, const AttentionScores& scores,
                     std::int64_t queries, std::int64_t keys, std::int64_t query_heads,
                     std::int64_t kv_heads) {
  const Build build{
      plan, tile_sight(plan, scores, queries, keys, query_heads, kv_heads, plan.counts_tokens),
      plan_tiles(queries), plan_tiles(keys)};
  const std::int64_t plans = std::int64_t{plan.batches} * plan.heads;
  const auto for_tiles = [&](void (Build::*step)(std::int64_t, std::int64_t) const) {
    parallel_for(stream, plans * build.query_tiles, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t at = begin; at < end; ++at)
        (build.*step)(at / build.query_tiles, at % build.query_tiles);
    });
  };
  for_tiles(&Build::count);
  for (std::int64_t one = 0; one < plans; ++one)
    plan.needed.ptr<std::int32_t>()[one] = static_cast<std::int32_t>(build.by_query(one).place());
  for_tiles(&Build::fill);
  parallel_for(stream, plans, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t one = begin; one < end; ++one)
      build.transpose(one);
  });
}

void pack_flags(StreamRef stream, const View& bits, const View& flags) {
  const std::int64_t words = bits.dim[1], tokens = flags.dim[1];
  parallel_for(stream, bits.dim[0], 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t b = begin; b < end; ++b) {
      for (std::int64_t w = 0; w < words; ++w) {
        std::uint64_t word = 0;
        for (std::int64_t c = 0; c < kPlanTile && w * kPlanTile + c < tokens; ++c) {
          const std::int64_t at = b * flags.stride[0] + (w * kPlanTile + c) * flags.stride[1];
          if (flags.ptr<std::uint8_t>()[at] != 0) word |= std::uint64_t{1} << c;
        }
        bits.ptr<std::uint64_t>()[b * bits.stride[0] + w] = word;
      }
    }
  });
}

}  // namespace fovea::cpu::FOVEA_ISA
