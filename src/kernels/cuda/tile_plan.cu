// Builds the lists of a TilePlan. A warp has one line, a query tile's list or a key tile's, and
// walks it in ascending order, so that nothing depends on who comes first. Lines are walked twice,
// to count and to fill: nothing of the size of all pairs of tiles is stored.

#include "kernels/cuda/tile/packed.cuh"
#include "kernels/cuda/tile/reduce.cuh"
#include "kernels/tile_plan.h"

namespace fovea::cuda {

namespace {

constexpr int kWarps = 4;  // of a block

// One direction's lists, of all (batch, head).
struct Lists {
  std::int32_t *begin, *full, *tiles;
  std::int64_t count, capacity;

  Lists(const View& begins, const View& fulls, const View& entries)
      : begin(begins.ptr<std::int32_t>()),
        full(fulls.ptr<std::int32_t>()),
        tiles(entries.ptr<std::int32_t>()),
        count(fulls.dim[1]),
        capacity(entries.dim[1]) {}
};

struct Build {
  Lists of_queries, of_keys;
  TileSight sight;
  std::int64_t plans;
  int heads;
};

// Whether any pair of two tiles is seen, and whether every real one is: the same in all lanes, each
// of which looks at two rows.
struct Seen {
  bool any, all;
};
__device__ __forceinline__ Seen classify(const TileSight& sight, std::int64_t sample,
                                         std::int64_t head, std::int64_t query_tile,
                                         std::int64_t key_tile) {
  const std::int64_t slot = query_tile * kPlanTile + threadIdx.x % kWarp;
  const std::uint64_t real = sight.real_keys(key_tile);
  bool any = false, all = true;
#pragma unroll 1
  for (int half = 0; half < kPlanTile; half += kWarp) {
    const std::uint64_t word = sight.row(sample, head, slot + half, key_tile);
    any = any || word != 0;
    all = all && (word == real || slot + half >= sight.queries);
  }
  return {__any_sync(~0u, any) != 0, __all_sync(~0u, all) != 0};
}

// The tiles [first, end) of the other side that a tile may meet; `all` others where no band around
// the tile is known to hold them.
struct Band {
  std::int64_t first = 0, end;
  bool known = false;  // nothing outside of it, and little to skip inside

  __device__ __forceinline__ Band(const TileSight& sight, const TileRule& r, std::int64_t tile,
                                  bool by_query, std::int64_t all)
      : end(all) {
    const bool in_order = sight.query_order.at == nullptr && sight.key_order.at == nullptr;
    known = (in_order || r.in_slots) && (r.left >= 0 || r.block_left >= 0) && r.stair_width <= 0 &&
            r.stride <= 0 && r.period <= 0 && r.first_keys <= 0 && r.last_keys == kNoToken &&
            r.first_queries <= 0 && r.last_queries == kNoToken && r.key_flags == nullptr &&
            r.query_flags == nullptr && r.list == nullptr;
    if (!known) return;
    const std::int64_t offset = std::int64_t{sight.keys} - sight.queries;
    // Of a query tile positions, of a key tile keys; and those that these meet.
    const std::int64_t shift = by_query ? offset : 0,
                       tokens = by_query ? sight.queries : sight.keys;
    const std::int64_t last =
        tile * kPlanTile + kPlanTile < tokens ? tile * kPlanTile + kPlanTile : tokens;
    const std::int64_t low = tile * kPlanTile + shift, high = last - 1 + shift;
    const std::int64_t before = by_query ? r.left : r.right, behind = by_query ? r.right : r.left;
    std::int64_t from = std::int64_t{1} << 40, to = -1;
    if (r.left >= 0) from = low - before, to = high + behind;
    if (r.block_left >= 0 && high >= 0) {
      const std::int64_t earlier = by_query ? r.block_left : r.block_right,
                         later = by_query ? r.block_right : r.block_left;
      const std::int64_t begin = (quotient(low > 0 ? low : 0, r.block) - earlier) * r.block,
                         past = (quotient(high, r.block) + later + 1) * r.block;
      from = begin < from ? begin : from;
      to = past - 1 > to ? past - 1 : to;
    }
    if (in_order && sight.causal) {
      if (by_query)
        to = high < to ? high : to;
      else
        from = low > from ? low : from;
    }
    if (!by_query) from -= offset, to -= offset;
    first = from > 0 ? from / kPlanTile : 0;
    const std::int64_t past = to < 0 ? 0 : to / kPlanTile + 1;
    end = past < all ? past : all;
  }
};

// Tokens of a tile's slots, two a lane; those of all lanes lie in [low, high].
struct TileTokens {
  int low = kNoToken, high = -1, count;
  __device__ __forceinline__ TileTokens(const std::int32_t* order, std::int64_t tile, int tokens) {
    const int first = static_cast<int>(tile) * kPlanTile;
    count = tokens - first < kPlanTile ? tokens - first : kPlanTile;
    const int slot = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
    for (int half = 0; half < kPlanTile; half += kWarp) {
      if (slot + half >= count) continue;
      const int token = order[first + slot + half];
      low = token < low ? token : low;
      high = token > high ? token : high;
    }
    low = __reduce_min_sync(~0u, low);
    high = __reduce_max_sync(~0u, high);
  }
};

// Rules in slots whose tokens only causality and hides_own tell apart: two tiles all of whose pairs
// the pattern shows are mostly told by the lowest and highest tokens of each.
struct OrderedTiles {
  const std::int32_t *queries = nullptr, *keys = nullptr;  // null: not such a rule
  std::int64_t sample;
  const TileRule* rule;

  __device__ __forceinline__ OrderedTiles(const TileSight& sight, const TileRule& r,
                                          std::int64_t sample_, std::int64_t head)
      : sample(sample_), rule(&r) {
    const bool plain = r.in_slots && sight.query_order.at != nullptr &&
                       sight.key_order.at != nullptr && sight.query_valid.at == nullptr &&
                       sight.key_valid.at == nullptr && sight.key_segments.at == nullptr &&
                       r.query_lengths == nullptr && r.key_lengths == nullptr &&
                       r.query_flags == nullptr && r.stair_width <= 0 &&
                       !(r.hides_own && sight.queries != sight.keys);
    if (!plain) return;
    queries =
        sight.query_order.at + sample * sight.query_order.batch + head * sight.query_order.head;
    keys = sight.key_order.at + sample * sight.key_order.batch +
           quotient(head, sight.group) * sight.key_order.head;
  }

  // False if the words must tell.
  __device__ __forceinline__ bool tells(const TileSight& sight, std::int64_t query_tile,
                                        std::int64_t key_tile, Seen& seen) const {
    if (queries == nullptr) return false;
    const std::int64_t offset = std::int64_t{sight.keys} - sight.queries,
                       slot = query_tile * kPlanTile + threadIdx.x % kWarp;
    const std::uint64_t real = sight.real_keys(key_tile);
    bool any = false, all = true;
#pragma unroll
    for (int half = 0; half < kPlanTile; half += kWarp) {
      if (slot + half >= sight.queries) continue;
      const std::uint64_t word =
          real & rule->pattern_word(sample, 0, slot + half + offset, key_tile * kPlanTile);
      any = any || word != 0;
      all = all && word == real;
    }
    seen = {__any_sync(~0u, any) != 0, __all_sync(~0u, all) != 0};
    if (!seen.any || (!sight.causal && !rule->hides_own)) return true;
    if (!sight.causal && queries == keys) {  // one permutation
      if (query_tile != key_tile) return true;
      if (!seen.all) return false;
      seen = {sight.keys - key_tile * kPlanTile > 1, false};
      return true;
    }
    const TileTokens q(queries, query_tile, sight.queries), k(keys, key_tile, sight.keys);
    if (!sight.causal) return k.high < q.low || k.low > q.high;
    const std::int64_t ahead = offset - (rule->hides_own ? 1 : 0);
    if (k.high <= q.low + ahead) return true;
    const bool some = k.low <= q.high + ahead;
    if (some && !seen.all) return false;
    seen = {some, false};
    return true;
  }
};

// Counts a line's entries into begin[t + 1] and full[t]; or, once these are placed, writes the
// entries. Reads the rules' memory, from L2; writes 4 bytes an entry.
template <bool kFill>
__global__ void __launch_bounds__(kWarps* kWarp, 8)
    lines_kernel(const __grid_constant__ Build build) {
  std::int64_t line = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  const std::int64_t query_lines = build.plans * build.of_queries.count;
  const bool by_query = line < query_lines;
  if (!by_query) line -= query_lines;
  const Lists& own = by_query ? build.of_queries : build.of_keys;
  const std::int64_t others = by_query ? build.of_keys.count : build.of_queries.count;
  if (line >= build.plans * own.count) return;  // whole warps
  const std::int64_t one = quotient(line, own.count), tile = line - one * own.count;
  const std::int64_t sample = quotient(one, build.heads), head = one - sample * build.heads;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  std::int32_t* begin = own.begin + one * (own.count + 1) + tile;
  std::int32_t full = 0, partial = 0, end = 0;
  if (kFill) {
    full = begin[0];
    partial = full + own.full[line];
    end = begin[1];
  }
  const TileRule& rule = build.sight.rules[head];
  const Band band(build.sight, rule, tile, by_query, others);
  const OrderedTiles ordered(build.sight, rule, sample, head);
  for (std::int64_t base = band.first; base < band.end; base += kWarp) {
    const std::int64_t mine = base + lane;
    const bool near =
        mine < band.end && (band.known || build.sight.reaches(sample, head, by_query ? tile : mine,
                                                              by_query ? mine : tile));
    for (unsigned left = __ballot_sync(~0u, near); left != 0; left &= left - 1) {
      const std::int64_t other = base + __ffs(static_cast<int>(left)) - 1;
      const std::int64_t query_tile = by_query ? tile : other, key_tile = by_query ? other : tile;
      Seen seen;
      if (!ordered.tells(build.sight, query_tile, key_tile, seen))
        seen = classify(build.sight, sample, head, query_tile, key_tile);
      if (!seen.any) continue;
      const std::int32_t at = seen.all ? full : partial;
      if (kFill && lane == 0 && at < end)
        own.tiles[one * own.capacity + at] = static_cast<std::int32_t>(other);
      full += seen.all ? 1 : 0;
      partial += seen.all ? 0 : 1;
    }
  }
  if (!kFill && lane == 0) {
    begin[1] = full + partial;
    own.full[line] = full;
  }
}

// From the number of entries of every line to where it begins, cut at the capacity. A warp has one
// direction of one (batch, head).
__global__ void place_kernel(Build build, std::int32_t* needed) {
  const bool by_query = blockIdx.y == 0;
  const Lists& own = by_query ? build.of_queries : build.of_keys;
  const std::int64_t one = blockIdx.x;
  const int lane = static_cast<int>(threadIdx.x);
  std::int32_t* begin = own.begin + one * (own.count + 1);
  const auto cut = [&](std::int64_t at) {
    return static_cast<std::int32_t>(at < own.capacity ? at : own.capacity);
  };
  std::int64_t before = 0;
  for (std::int64_t base = 0; base < own.count; base += kWarp) {
    const std::int64_t t = base + lane;
    const std::int64_t count = t < own.count ? begin[t + 1] : 0;
    std::int64_t sum = count;
    for (int offset = 1; offset < kWarp; offset *= 2) {
      const std::int64_t lower = __shfl_up_sync(~0u, sum, offset);
      if (lane >= offset) sum += lower;
    }
    if (t < own.count) {
      const std::int32_t end = cut(before + sum), room = end - cut(before + sum - count);
      begin[t + 1] = end;
      std::int32_t* full = own.full + one * own.count + t;
      if (*full > room) *full = room;
    }
    before += __shfl_sync(~0u, sum, kWarp - 1);
  }
  if (lane != 0) return;
  begin[0] = 0;
  if (by_query) needed[one] = static_cast<std::int32_t>(before);
}

// A warp makes one word of 64 flags: reads them once, writes 1/8 of their size.
__global__ void pack_flags_kernel(std::uint64_t* bits, std::int64_t bits_batch, std::int64_t words,
                                  const std::uint8_t* flags, std::int64_t flags_batch,
                                  std::int64_t flags_token, std::int64_t tokens,
                                  std::int64_t samples) {
  const std::int64_t at = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  if (at >= samples * words) return;  // whole warps
  const std::int64_t sample = at / words, word = at % words;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  unsigned halves[2];
  for (int half = 0; half < 2; ++half) {
    const std::int64_t token = word * kPlanTile + half * kWarp + lane;
    const bool set = token < tokens && flags[sample * flags_batch + token * flags_token] != 0;
    halves[half] = __ballot_sync(~0u, set);
  }
  if (lane == 0) bits[sample * bits_batch + word] = std::uint64_t{halves[1]} << kWarp | halves[0];
}

}  // namespace

void tile_plan_build(StreamRef stream, const TilePlan& plan, const AttentionScores& scores,
                     std::int64_t queries, std::int64_t keys, std::int64_t query_heads,
                     std::int64_t kv_heads) {
  const Build build{
      Lists(plan.begin, plan.full, plan.key_tiles),
      Lists(plan.key_begin, plan.key_full, plan.query_tiles),
      tile_sight(plan, scores, queries, keys, query_heads, kv_heads, plan.counts_tokens),
      std::int64_t{plan.batches} * plan.heads, plan.heads};
  if (build.plans == 0) return;
  const std::int64_t lines = build.plans * (build.of_queries.count + build.of_keys.count);
  if (lines > 0) {
    lines_kernel<false><<<blocks_for(lines, kWarps), kWarps * kWarp, 0, stream_of(stream)>>>(build);
    check_launch("tile_plan_build");
  }
  const dim3 directions(static_cast<unsigned>(build.plans), 2);
  place_kernel<<<directions, kWarp, 0, stream_of(stream)>>>(build, plan.needed.ptr<std::int32_t>());
  check_launch("tile_plan_build");
  if (lines > 0) {
    lines_kernel<true><<<blocks_for(lines, kWarps), kWarps * kWarp, 0, stream_of(stream)>>>(build);
    check_launch("tile_plan_build");
  }
}

void pack_flags(StreamRef stream, const View& bits, const View& flags) {
  const std::int64_t words = bits.numel();
  if (words == 0) return;
  pack_flags_kernel<<<blocks_for(words, kWarps), kWarps * kWarp, 0, stream_of(stream)>>>(
      bits.ptr<std::uint64_t>(), bits.stride[0], bits.dim[1], flags.ptr<std::uint8_t>(),
      flags.stride[0], flags.stride[1], flags.dim[1], bits.dim[0]);
  check_launch("pack_flags");
}

}  // namespace fovea::cuda
