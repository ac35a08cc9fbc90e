#pragma once
// What the warps of the ordered backward kernel (ordered.cuh) share: the shape, the shared memory
// and the order of the walk.

#include "kernels/cuda/flash/staged_memory.cuh"
#include "kernels/cuda/flash/tokens.cuh"
#include "kernels/cuda/tile/wgmma_narrow.cuh"

namespace fovea::cuda {

constexpr int kOrderedKeys = 128, kOrderedQueries = 64, kOrderedThreads = 384;

// kStages: query tiles in shared memory. Registers of a thread: owners + owners + helpers = 504.
// kBanded: for calls of a band alone; narrow ones go ahead (ordered_band.cuh), with room for two
// key tiles, and for dQ of query tiles that a block finishes.
template <int kWidth_, int kValueWidth_, int kStages_, int kOwnerRegisters_, bool kBanded_ = false>
struct OrderedShape {
  using Banded = OrderedShape<kWidth_, kValueWidth_, kStages_, kOwnerRegisters_, true>;
  static constexpr bool kBanded = kBanded_;
  // Whether a block does several key tiles, and brings one in ahead.
  static constexpr bool kAhead = kBanded && kWidth_ <= 64 && kValueWidth_ <= 64;
  static constexpr int kWidth = kWidth_, kValueWidth = kValueWidth_, kStages = kStages_;
  static constexpr int kOwnerRegisters = kOwnerRegisters_;
  static constexpr int kHelperRegisters = 504 - 2 * kOwnerRegisters;
  // Tiles are panels at most 64 wide, one behind the other.
  static constexpr int kColumns = kWidth < 64 ? kWidth : 64;
  static constexpr int kPanels = kWidth / kColumns, kValuePanels = kValueWidth / 64;
  using Tile = Swizzled<kColumns>;
  using ValueTile = Swizzled<64>;                               // and of scores
  static constexpr unsigned kHalfBytes = 64 * Tile::kRowBytes;  // 64 rows of a panel
  static constexpr unsigned kValueHalfBytes = 64 * ValueTile::kRowBytes;
  static constexpr unsigned kQueryBytes = kPanels * kHalfBytes;
  static constexpr unsigned kStageBytes = kQueryBytes + kValuePanels * kValueHalfBytes;
  static constexpr unsigned kScoreBytes = 2 * kValueHalfBytes;
  static constexpr unsigned kSumBytes = kOrderedQueries * kWidth * sizeof(float);
  static constexpr unsigned kRowBytes = 2 * kOrderedQueries * sizeof(float);
  // What each owner makes of dQ: the columns of its half.
  static constexpr int kSumColumns = kWidth / 2;
  // k | v | (k | v) | q, dout | ... | dS^T | dS^T | dQ | dQ | lse, delta | ... | barriers |
  // (earlier dQ | earlier dQ | dq of 16 queries | dq of 16 queries)
  static constexpr unsigned kValuesAt = kPanels * 2 * kHalfBytes;
  static constexpr unsigned kOwnBytes = kValuesAt + kValuePanels * 2 * kValueHalfBytes;
  static constexpr unsigned kQueriesAt = (kAhead ? 2 : 1) * kOwnBytes;
  static constexpr unsigned kScoresAt = kQueriesAt + kStages * kStageBytes;
  static constexpr unsigned kSumsAt = kScoresAt + 2 * kScoreBytes;
  static constexpr unsigned kRowsAt = kSumsAt + 2 * kSumBytes;
  static constexpr unsigned kBarriersAt = kRowsAt + kStages * kRowBytes;
  static constexpr unsigned kPlacesAt = kBarriersAt + 256;
  static constexpr unsigned kEarlierAt = kBarriersAt + (kAhead ? 512 : 128);
  static constexpr unsigned kFinishedAt = kEarlierAt + (kAhead ? 2 * kSumBytes : 0);
  static constexpr unsigned kFinishedBytes = 16 * kWidth * 2;
  static constexpr unsigned kBytes =
      kFinishedAt + (kAhead ? 2 * kFinishedBytes : 0) + ValueTile::kAlignment;
  static_assert((kWidth == 32 || kWidth % 64 == 0) && kWidth <= 128 && kValueWidth % 64 == 0 &&
                kBytes <= 232448);
};

// The shared memory of a block. Further barriers, by turn:
//   summed[i]      turn n: the dQ of step 2 n + i is there
//   sums_used[i]   turn n: its place is free
// and where blocks go ahead, who do several key tiles and count steps on and on:
//   own_used[i]    turn n: the owners need the block's key tile 2 n + i no more
//   placed[i]      turn n: it is known what its key tile kPlaces n + i is
//   earlier[i]     turn n: the n-th earlier dQ that the i-th warp waits for is there
template <class Shape>
struct OrderedMemory : StagedMemory<Shape> {
  static constexpr int kPlaces = 8;

  // Of the block's key tile `own`.
  __device__ __forceinline__ unsigned keys(int own) const {
    return this->base + (Shape::kAhead ? static_cast<unsigned>(own & 1) * Shape::kOwnBytes : 0);
  }
  __device__ __forceinline__ unsigned values(int own) const { return keys(own) + Shape::kValuesAt; }
  __device__ __forceinline__ unsigned douts(int stage) const {
    return this->queries(stage) + Shape::kQueryBytes;
  }
  __device__ __forceinline__ unsigned sums(int step) const {
    return this->base + Shape::kSumsAt + static_cast<unsigned>(step & 1) * Shape::kSumBytes;
  }
  __device__ __forceinline__ unsigned summed(int step) const { return this->further(step & 1); }
  __device__ __forceinline__ unsigned sums_used(int step) const {
    return this->further(2 + (step & 1));
  }
  __device__ __forceinline__ unsigned own_used(int own) const {
    return this->further(4 + (own & 1));
  }
  __device__ __forceinline__ unsigned placed(int own) const {
    return this->further(6 + own % kPlaces);
  }
  __device__ __forceinline__ unsigned earlier(int i) const {
    return this->further(6 + kPlaces + i);
  }
  // An OrderedPlace.
  __device__ __forceinline__ unsigned place(int own) const {
    return this->base + Shape::kPlacesAt + static_cast<unsigned>(own % kPlaces) * 32;
  }
  __device__ __forceinline__ void wait_for_place(int own) const {
    wait_turn(placed(own), own / kPlaces);
  }
  // Where the block's number is left for its threads.
  __device__ __forceinline__ unsigned number() const { return this->further(4); }
  __device__ __forceinline__ void init() const {
    for (int stage = 0; stage < Shape::kStages; ++stage) {
      init_barrier(this->loaded(stage), 2);
      init_barrier(this->used(stage), 8);
    }
    for (int i = 0; i < 2; ++i) {
      init_barrier(summed(i), 8);
      init_barrier(sums_used(i), 1);
      if (Shape::kAhead) init_barrier(own_used(i), 8);
      if (Shape::kAhead) init_barrier(earlier(i), 1);
    }
    for (int i = 0; Shape::kAhead && i < kPlaces; ++i)
      init_barrier(placed(i), 1);
  }
};

struct OrderedPass {
  TileOrder order;  // of key heads and their tiles
  int query_tiles = 0;
  float* partial = nullptr;  // [B,H,query_tiles, 64 x width], a tile in its threads' order
  int* turns = nullptr;      // [B,H,query_tiles]: key tiles that a query tile has had; zero
  int* next = nullptr;       // the number of the next block to start; zero
};

// What a block does: a key tile of a key head, and for each query head of its group the query tiles
// that see it, the last one first.
template <class Shape>
struct OrderedPlace {
  int b, kv, key_tile, first_tile, last_tile, steps;

  OrderedPlace() = default;
  __device__ __forceinline__ OrderedPlace(const FlashCall& call, const OrderedPass& pass,
                                          int number) {
    const TileOrder::Place place = pass.order.at(number);
    b = place.head / call.kv_heads, kv = place.head % call.kv_heads;
    key_tile = place.tile;
    first_tile = call.causal ? max(0, key_tile * kOrderedKeys - call.offset) / kOrderedQueries : 0;
    last_tile = pass.query_tiles - 1;
    if (Shape::kBanded) {
      const int last = key_tile * kOrderedKeys + kOrderedKeys - 1 + call.span - call.offset;
      last_tile = last < 0 ? -1 : min(last_tile, last / kOrderedQueries);
    }
    steps = max(0, last_tile + 1 - first_tile) * call.group;
  }
  // How many key tiles come before this one in the sum of a query tile. All tiles between the first
  // that a query tile meets and the last meet it, so that this is also its turn.
  __device__ __forceinline__ int turn(const FlashCall& call, int query_tile) const {
    if (!Shape::kBanded) return key_tile;
    return key_tile - max(0, query_tile * kOrderedQueries + call.offset - call.span) / kOrderedKeys;
  }
  // Whether no key tile comes after this one in that sum.
  __device__ __forceinline__ bool finishes(const FlashCall& call, const OrderedPass& pass,
                                           int query_tile) const {
    const int last = query_tile * kOrderedQueries + kOrderedQueries - 1 + call.offset;
    return key_tile == min(pass.order.tiles - 1, last / kOrderedKeys);
  }
};

// One step of it after the other.
struct OrderedStep {
  int head, tile, last;

  template <class Shape>
  __device__ __forceinline__ OrderedStep(const FlashCall& call, const OrderedPlace<Shape>& place)
      : head(place.kv * call.group), tile(place.last_tile), last(place.last_tile) {}
  template <class Shape>
  __device__ __forceinline__ void advance(const OrderedPlace<Shape>& place) {
    if (--tile < place.first_tile) tile = last, ++head;
  }
};

// What is there of the columns of a panel.
template <int kColumns>
__device__ __forceinline__ int panel_width(int width, int panel) {
  return min(kColumns, max(0, width - kColumns * panel));
}

}  // namespace fovea::cuda
