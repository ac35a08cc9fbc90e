#pragma once
// The tiles of the other side that a block of a tensor-core kernel meets, in ascending order: a
// range of tokens, or the lists of a plan.

#include "kernels/cuda/flash/tokens.cuh"

namespace fovea::cuda {

constexpr int kNoTile = 0x7fffffff;

// What a plan says of an own tile and another: two bits a list.
enum TileState : unsigned { kUnseen = 0, kSeenWhole = 1, kSeenInPart = 2 };

// The merged lists of up to two own tiles of a plan, each of two ascending parts. Merging them, and
// not one part after the other, keeps a row's order of keys independent of what other rows see. All
// threads make the same walk.
template <int kLists>
struct ListWalk {
  const std::int32_t* tiles = nullptr;
  int at[kLists][2], end[kLists][2], ahead[kLists][2];  // whole, in part; the entry at `at`

  __device__ __forceinline__ void start(const PlanLists& lists, int list, int own_tile) {
    tiles = lists.tiles + list * lists.capacity;
#pragma unroll
    for (int l = 0; l < kLists; ++l) {
      at[l][0] = at[l][1] = end[l][0] = end[l][1] = 0;
      if (own_tile + l < lists.count) {
        const std::int32_t* begin =
            lists.begin + static_cast<std::int64_t>(list) * (lists.count + 1) + own_tile + l;
        at[l][0] = begin[0];
        end[l][1] = begin[1];
        at[l][1] = end[l][0] =
            at[l][0] + lists.full[static_cast<std::int64_t>(list) * lists.count + own_tile + l];
      }
#pragma unroll
      for (int part = 0; part < 2; ++part)
        ahead[l][part] = at[l][part] < end[l][part] ? tiles[at[l][part]] : kNoTile;
    }
  }
  // Only tiles low to high - 1 are left. Entries are binary searched for.
  __device__ __forceinline__ void narrow(int low, int high) {
    const auto first_from = [&](int from, int to, int tile) {
      while (from < to) {
        const int middle = (from + to) / 2;
        if (tiles[middle] < tile)
          from = middle + 1;
        else
          to = middle;
      }
      return from;
    };
#pragma unroll
    for (int part = 0; part < 2; ++part) {
#pragma unroll
      for (int l = 0; l < kLists; ++l) {
        if (low > 0) at[l][part] = first_from(at[l][part], end[l][part], low);
        if (high != kNoTile) end[l][part] = first_from(at[l][part], end[l][part], high);
        ahead[l][part] = at[l][part] < end[l][part] ? tiles[at[l][part]] : kNoTile;
      }
    }
  }
  // The next tile, kNoTile at the end, and its states.
  __device__ __forceinline__ int next(unsigned& state) {
    int tile = kNoTile;
#pragma unroll
    for (int l = 0; l < kLists; ++l)
      tile = min(tile, min(ahead[l][0], ahead[l][1]));
    state = 0;
    if (tile == kNoTile) return tile;
#pragma unroll
    for (int l = 0; l < kLists; ++l) {
#pragma unroll
      for (int part = 0; part < 2; ++part) {
        if (ahead[l][part] != tile) continue;
        state |= (part == 0 ? kSeenWhole : kSeenInPart) << (2 * l);
        ++at[l][part];
        ahead[l][part] = at[l][part] < end[l][part] ? tiles[at[l][part]] : kNoTile;
      }
    }
    return tile;
  }
};

// What the rule shows the query in `slot` of a tile of keys. Not inlined: a plan's tiles seen in
// part are few, and its registers would be missing in every tile.
__device__ __noinline__ inline std::uint64_t rule_word(const TileSight& sight, int b, int h,
                                                       int slot, int key_tile) {
  return sight.row(b, h, slot, key_tile);
}

// The same for a whole warp that goes on to tensor cores: lanes part ways in a rule, and meet
// again.
__device__ __forceinline__ std::uint64_t rule_word_of_lane(const TileSight& sight, int b, int h,
                                                           int slot, int key_tile) {
  const std::uint64_t word = rule_word(sight, b, h, slot, key_tile);
  __syncwarp();
  return word;
}

// Where a block is: a tile of a head of the other side. Heads come one after another.
template <bool kMasked, int kLists>
struct TileCursor {
  int head, head_end;                // head_end: no tile is left
  int tile = 0, begin = 0, end = 0;  // of a range
  unsigned state = 0;                // of a plan

  // Tiles begin..end - 1 of each head.
  __device__ __forceinline__ TileCursor(int first_head, int heads, int begin_, int end_)
      : head(begin_ < end_ ? first_head : first_head + heads),
        head_end(first_head + heads),
        tile(begin_),
        begin(begin_),
        end(end_) {}
  __device__ __forceinline__ bool done() const { return head >= head_end; }
  __device__ __forceinline__ void advance() {
    if (++tile == end) tile = begin, ++head;
  }
};

template <int kLists>
struct TileCursor<true, kLists> {
  int head, head_end, tile = 0, begin = 0, end = 0;
  unsigned state = 0;
  const FlashPlan* plan = nullptr;  // null: a range
  const PlanLists* lists = nullptr;
  int b = 0, own_tile = 0;
  ListWalk<kLists> walk;

  __device__ __forceinline__ TileCursor(int first_head, int heads, int begin_, int end_)
      : head(begin_ < end_ ? first_head : first_head + heads),
        head_end(first_head + heads),
        tile(begin_),
        begin(begin_),
        end(end_) {}
  // `first_head` is a query head whichever side is walked. Of it only tiles low to high - 1.
  __device__ __forceinline__ TileCursor(const FlashPlan& plan_, const PlanLists& lists_, int b_,
                                        int own_tile_, int first_head, int heads, int low = 0,
                                        int high = kNoTile)
      : head(first_head),
        head_end(first_head + heads),
        plan(&plan_),
        lists(&lists_),
        b(b_),
        own_tile(own_tile_) {
    walk.start(*lists, plan->list(b, head), own_tile);
    if (low > 0 || high != kNoTile) walk.narrow(low, high);
    advance();
  }
  __device__ __forceinline__ bool done() const { return head >= head_end; }
  __device__ __forceinline__ void advance() {
    if (plan == nullptr) {
      if (++tile == end) tile = begin, ++head;
      return;
    }
    tile = walk.next(state);
    while (tile == kNoTile) {
      if (++head >= head_end) return;
      walk.start(*lists, plan->list(b, head), own_tile);
      tile = walk.next(state);
    }
  }
};

}  // namespace fovea::cuda
