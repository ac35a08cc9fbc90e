// Builds the lists of a TilePlan. A warp has one line, a query tile's list or a key tile's, and
// walks it in ascending order, so that nothing depends on who comes first. Lines are walked twice,
// to count and to fill: nothing of the size of all pairs of tiles is stored.

#include "kernels/cuda/launch.cuh"
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

// Counts a line's entries into begin[t + 1] and full[t]; or, once these are placed, writes the
// entries. Reads the rules' memory, from L2; writes 4 bytes an entry.
template <bool kFill>
__global__ void lines_kernel(Build build) {
  std::int64_t line = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  const std::int64_t query_lines = build.plans * build.of_queries.count;
  const bool by_query = line < query_lines;
  if (!by_query) line -= query_lines;
  const Lists& own = by_query ? build.of_queries : build.of_keys;
  const std::int64_t others = by_query ? build.of_keys.count : build.of_queries.count;
  if (line >= build.plans * own.count) return;  // whole warps
  const std::int64_t one = line / own.count, tile = line % own.count;
  const std::int64_t sample = one / build.heads, head = one % build.heads;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  std::int32_t* begin = own.begin + one * (own.count + 1) + tile;
  std::int32_t full = 0, partial = 0, end = 0;
  if (kFill) {
    full = begin[0];
    partial = full + own.full[line];
    end = begin[1];
  }
  for (std::int64_t base = 0; base < others; base += kWarp) {
    const std::int64_t mine = base + lane;
    const bool near = mine < others && build.sight.reaches(sample, head, by_query ? tile : mine,
                                                           by_query ? mine : tile);
    for (unsigned left = __ballot_sync(~0u, near); left != 0; left &= left - 1) {
      const std::int64_t other = base + __ffs(static_cast<int>(left)) - 1;
      const Seen seen =
          classify(build.sight, sample, head, by_query ? tile : other, by_query ? other : tile);
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
