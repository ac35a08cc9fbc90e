// Builds the lists of a TilePlan. A warp has one line, a query tile's list or a key tile's, and
// walks it in ascending order, so that nothing depends on who comes first. Lines are walked twice,
// to count and to fill: nothing of the size of all pairs of tiles is stored. Rules of sorted
// tokens, whose plans are built in every step, meet few tiles, and mostly need of them only the
// lowest and the highest token: a thread has one of their lines.

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

// The lowest and highest token of each tile of an order's rows; null: there are no orders. Strides
// in rows.
struct TileRanges {
  const int2* at = nullptr;
  std::int64_t batch = 0, head = 0, tiles = 0;

  TileRanges() = default;
  TileRanges(const int2* ranges, const View& order, std::int64_t tiles_)
      : at(ranges),
        batch(order.dim[0] == 1 ? 0 : order.dim[1]),
        head(order.dim[1] == 1 ? 0 : 1),
        tiles(tiles_) {}
  __device__ __forceinline__ int2 of(std::int64_t sample, std::int64_t row,
                                     std::int64_t tile) const {
    return at[(sample * batch + row * head) * tiles + tile];
  }
};

struct Build {
  Lists of_queries, of_keys;
  TileSight sight;
  std::int64_t plans;
  int heads;
  TileRanges query_ranges = {}, key_ranges = {};
};

// A warp a tile. Reads the order once.
__global__ void __launch_bounds__(kWarps* kWarp)
    ranges_kernel(int2* ranges, const std::int32_t* order, std::int64_t rows, std::int64_t tiles,
                  int tokens) {
  const std::int64_t at = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  if (at >= rows * tiles) return;  // whole warps
  const std::int64_t row = quotient(at, tiles);
  const int first = static_cast<int>(at - row * tiles) * kPlanTile,
            lane = static_cast<int>(threadIdx.x) % kWarp;
  int low = kNoToken, high = -1;
#pragma unroll
  for (int half = 0; half < kPlanTile; half += kWarp) {
    if (first + lane + half >= tokens) continue;
    const int token = order[row * tokens + first + lane + half];
    low = min(low, token), high = max(high, token);
  }
  low = __reduce_min_sync(~0u, low), high = __reduce_max_sync(~0u, high);
  if (lane == 0) ranges[at] = make_int2(low, high);
}

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

// Whether the rule counts slots, of which it shows one window or band of blocks, and only causality
// and hides_own tell tokens apart.
__device__ __forceinline__ bool is_sorted_band(const TileSight& sight, const TileRule& r) {
  const Band band(sight, r, 0, true, 1);
  return band.known && r.in_slots && sight.query_order.at != nullptr &&
         sight.key_order.at != nullptr && sight.query_valid.at == nullptr &&
         sight.key_valid.at == nullptr && sight.key_segments.at == nullptr &&
         r.query_lengths == nullptr && r.key_lengths == nullptr &&
         (r.left < 0 || (r.block_left < 0 && r.right >= 0 && r.dilation <= 1)) &&
         !(r.hides_own && sight.queries != sight.keys);
}

// Two tiles under such a rule. False if the words must tell.
__device__ __forceinline__ bool sorted_tiles(const Build& build, const TileRule& r,
                                             std::int64_t sample, std::int64_t head,
                                             std::int64_t query_tile, std::int64_t key_tile,
                                             Seen& seen) {
  const TileSight& sight = build.sight;
  const std::int64_t offset = std::int64_t{sight.keys} - sight.queries;
  const std::int64_t last_slot = query_tile * kPlanTile + kPlanTile - 1,
                     last_key = key_tile * kPlanTile + kPlanTile - 1;
  const std::int64_t low = query_tile * kPlanTile + offset,
                     high = (last_slot < sight.queries ? last_slot : sight.queries - 1) + offset,
                     first = key_tile * kPlanTile,
                     last = last_key < sight.keys ? last_key : sight.keys - 1;
  // Positions see keys from .. to, both of which grow with the position, without gaps.
  seen = {false, false};
  if (high < 0) return true;
  const auto from = [&](std::int64_t p) {
    return r.left >= 0 ? p - r.left : (quotient(p, r.block) - r.block_left) * r.block;
  };
  const auto to = [&](std::int64_t p) {
    return r.left >= 0 ? p + r.right : (quotient(p, r.block) + r.block_right + 1) * r.block - 1;
  };
  const std::int64_t lowest = low > 0 ? low : 0;
  seen.any = from(lowest) <= last && to(high) >= first;
  seen.all = low >= 0 && from(high) <= first && to(low) >= last;
  if (!seen.any || (!sight.causal && !r.hides_own)) return true;
  if (!sight.causal && sight.query_order.at == sight.key_order.at && sight.group == 1) {
    if (query_tile != key_tile) return true;  // two parts of one permutation
    if (!seen.all) return false;
    seen = {last > first, false};
    return true;
  }
  const int2 q = build.query_ranges.of(sample, head, query_tile),
             k = build.key_ranges.of(sample, quotient(head, sight.group), key_tile);
  if (!sight.causal) return k.y < q.x || k.x > q.y;
  const std::int64_t ahead = offset - (r.hides_own ? 1 : 0);
  if (k.y <= q.x + ahead) return true;
  const bool some = k.x <= q.y + ahead;
  if (some && !seen.all) return false;
  seen = {some, false};
  return true;
}

// A line: one direction's list of one tile of one (batch, head).
struct Line {
  bool by_query;
  std::int64_t one, tile, sample, head;
  const Lists* own;
  std::int64_t others;

  __device__ __forceinline__ Line(const Build& build, std::int64_t line) {
    const std::int64_t query_lines = build.plans * build.of_queries.count;
    by_query = line < query_lines;
    if (!by_query) line -= query_lines;
    own = by_query ? &build.of_queries : &build.of_keys;
    others = by_query ? build.of_keys.count : build.of_queries.count;
    one = quotient(line, own->count), tile = line - one * own->count;
    sample = quotient(one, build.heads), head = one - sample * build.heads;
  }
  __device__ __forceinline__ std::int32_t* begin() const {
    return own->begin + one * (own->count + 1) + tile;
  }
  __device__ __forceinline__ std::int32_t* full() const {
    return own->full + one * own->count + tile;
  }
};

// What is listed so far: numbers, or places where entries are written.
template <bool kFill>
struct Entries {
  std::int32_t full = 0, partial = 0, end = 0;

  __device__ __forceinline__ explicit Entries(const Line& line) {
    if (!kFill) return;
    full = line.begin()[0];
    partial = full + *line.full();
    end = line.begin()[1];
  }
  __device__ __forceinline__ void add(const Line& line, Seen seen, std::int64_t other,
                                      bool writes) {
    if (!seen.any) return;
    const std::int32_t at = seen.all ? full : partial;
    if (kFill && writes && at < end)
      line.own->tiles[line.one * line.own->capacity + at] = static_cast<std::int32_t>(other);
    full += seen.all ? 1 : 0;
    partial += seen.all ? 0 : 1;
  }
  __device__ __forceinline__ void store(const Line& line) const {
    if (kFill) return;
    line.begin()[1] = full + partial;
    *line.full() = full;
  }
};

// A line of any rule, by a warp.
template <bool kFill>
__device__ __forceinline__ void walk_line(const Build& build, const Line& line) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const Band band(build.sight, build.sight.rules[line.head], line.tile, line.by_query, line.others);
  Entries<kFill> entries(line);
  for (std::int64_t base = band.first; base < band.end; base += kWarp) {
    const std::int64_t mine = base + lane;
    const bool near =
        mine < band.end &&
        (band.known || build.sight.reaches(line.sample, line.head, line.by_query ? line.tile : mine,
                                           line.by_query ? mine : line.tile));
    for (unsigned left = __ballot_sync(~0u, near); left != 0; left &= left - 1) {
      const std::int64_t other = base + __ffs(static_cast<int>(left)) - 1;
      const Seen seen =
          classify(build.sight, line.sample, line.head, line.by_query ? line.tile : other,
                   line.by_query ? other : line.tile);
      entries.add(line, seen, other, lane == 0);
    }
  }
  if (lane == 0) entries.store(line);
}

// 32 lines of sorted bands, a thread each; words are asked by the warp, for one thread at a time.
template <bool kFill>
__device__ __forceinline__ void walk_sorted(const Build& build, std::int64_t first,
                                            std::int64_t lines) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const bool real = first + lane < lines;
  const Line line(build, real ? first + lane : first);
  const TileRule& r = build.sight.rules[line.head];
  const Band band(build.sight, r, line.tile, line.by_query, line.others);
  Entries<kFill> entries(line);
  const int count = real && band.end > band.first ? static_cast<int>(band.end - band.first) : 0;
  const int most = __reduce_max_sync(~0u, count);
#pragma unroll 1
  for (int e = 0; e < most; ++e) {
    const std::int64_t other = band.first + e, query_tile = line.by_query ? line.tile : other,
                       key_tile = line.by_query ? other : line.tile;
    Seen seen{false, false};
    const bool told =
        e >= count || sorted_tiles(build, r, line.sample, line.head, query_tile, key_tile, seen);
#pragma unroll 1
    for (unsigned open = __ballot_sync(~0u, !told); open != 0; open &= open - 1) {
      const int from = __ffs(static_cast<int>(open)) - 1;
      const Seen found = classify(
          build.sight, __shfl_sync(~0u, line.sample, from), __shfl_sync(~0u, line.head, from),
          __shfl_sync(~0u, query_tile, from), __shfl_sync(~0u, key_tile, from));
      if (lane == from) seen = found;
    }
    entries.add(line, seen, other, true);
  }
  if (real) entries.store(line);
}

// Counts a line's entries into begin[t + 1] and full[t]; or, once these are placed, writes the
// entries. Reads the rules' memory, from L2; writes 4 bytes an entry.
template <bool kFill>
__global__ void __launch_bounds__(kWarps* kWarp, 8)
    lines_kernel(const __grid_constant__ Build build) {
  const std::int64_t lines = build.plans * (build.of_queries.count + build.of_keys.count),
                     warps = std::int64_t{gridDim.x} * kWarps,
                     warp = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  bool sorted = build.query_ranges.at != nullptr;
  for (int h = static_cast<int>(threadIdx.x) % kWarp; sorted && h < build.heads; h += kWarp)
    sorted = is_sorted_band(build.sight, build.sight.rules[h]);
  if (__all_sync(~0u, sorted)) {
    for (std::int64_t first = warp * kWarp; first < lines; first += warps * kWarp)
      walk_sorted<kFill>(build, first, lines);
    return;
  }
#pragma unroll 1
  for (std::int64_t line = warp; line < lines; line += warps)
    walk_line<kFill>(build, Line(build, line));
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

void find_ranges(StreamRef stream, Build& build, const TilePlan& plan) {
  const bool same = plan.query_order.data == plan.key_order.data;
  const std::int64_t query_ranges = plan.query_order.rows() * build.of_queries.count,
                     key_ranges = same ? 0 : plan.key_order.rows() * build.of_keys.count;
  auto* const at = static_cast<int2*>(
      scratch(stream, static_cast<std::size_t>(query_ranges + key_ranges) * sizeof(int2),
              "tile_plan_build"));
  const auto launch = [&](int2* to, const View& order, std::int64_t tiles) {
    if (order.numel() == 0) return;
    ranges_kernel<<<blocks_for(order.rows() * tiles, kWarps), kWarps * kWarp, 0,
                    stream_of(stream)>>>(to, order.ptr<std::int32_t>(), order.rows(), tiles,
                                         static_cast<int>(order.cols()));
    check_launch("tile_plan_build");
  };
  launch(at, plan.query_order, build.of_queries.count);
  if (!same) launch(at + query_ranges, plan.key_order, build.of_keys.count);
  build.query_ranges = TileRanges(at, plan.query_order, build.of_queries.count);
  build.key_ranges = TileRanges(same ? at : at + query_ranges, plan.key_order, build.of_keys.count);
}

}  // namespace

void tile_plan_build(StreamRef stream, const TilePlan& plan, const AttentionScores& scores,
                     std::int64_t queries, std::int64_t keys, std::int64_t query_heads,
                     std::int64_t kv_heads) {
  Build build{Lists(plan.begin, plan.full, plan.key_tiles),
              Lists(plan.key_begin, plan.key_full, plan.query_tiles),
              tile_sight(plan, scores, queries, keys, query_heads, kv_heads, plan.counts_tokens),
              std::int64_t{plan.batches} * plan.heads, plan.heads};
  if (build.plans == 0) return;
  const std::int64_t lines = build.plans * (build.of_queries.count + build.of_keys.count);
  unsigned blocks = blocks_for(lines, kWarps);
  if (lines > 0 && plan.query_order && plan.key_order) {
    find_ranges(stream, build, plan);
    const auto most = static_cast<unsigned>(8 * multiprocessors());
    if (blocks > most) blocks = most;
  }
  if (lines > 0) {
    lines_kernel<false><<<blocks, kWarps * kWarp, 0, stream_of(stream)>>>(build);
    check_launch("tile_plan_build");
  }
  const dim3 directions(static_cast<unsigned>(build.plans), 2);
  place_kernel<<<directions, kWarp, 0, stream_of(stream)>>>(build, plan.needed.ptr<std::int32_t>());
  check_launch("tile_plan_build");
  if (lines > 0) {
    lines_kernel<true><<<blocks, kWarps * kWarp, 0, stream_of(stream)>>>(build);
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
