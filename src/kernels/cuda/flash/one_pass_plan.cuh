#pragma once
// What the warpgroups of the one-pass backward kernel (one_pass.cuh) share: the shape, the shared
// memory and the order of the walk.

#include "kernels/cuda/flash/staged_memory.cuh"
#include "kernels/cuda/flash/tokens.cuh"

namespace fovea::cuda {

constexpr int kPassKeys = 128, kPassQueries = 64, kPassThreads = 384;

// kStages: query tiles in shared memory. kKept: query tiles whose dQ stays in shared memory.
// kHoldOperands: whether the owners of keys hold k and v in registers or multiply them from shared
// memory. Registers of a thread: owners + owners + third = 504.
template <int kStages_, int kKept_, bool kHoldOperands_, int kOwnerRegisters_ = 200>
struct OnePassShape {
  static constexpr int kStages = kStages_;
  static constexpr int kKept = kKept_, kOwnerRegisters = kOwnerRegisters_;
  static constexpr int kThirdRegisters = 504 - 2 * kOwnerRegisters;
  static constexpr bool kHoldOperands = kHoldOperands_;
  using Tile = Swizzled<64>;
  static constexpr unsigned kTileBytes = 64 * Tile::kRowBytes;
  // k, v | k, v;  q, dout | ...;  dS^T | dS^T;  dQ | ...;  lse, delta | ... ; barriers
  static constexpr unsigned kKeyBytes = 4 * kTileBytes, kStageBytes = 2 * kTileBytes;
  static constexpr unsigned kScoreBytes = 2 * kTileBytes, kKeptBytes = 64 * 64 * sizeof(float);
  static constexpr unsigned kRowBytes = 2 * kPassQueries * sizeof(float);
  static constexpr unsigned kQueriesAt = 2 * kKeyBytes;
  static constexpr unsigned kScoresAt = kQueriesAt + kStages * kStageBytes;
  static constexpr unsigned kKeptAt = kScoresAt + 2 * kScoreBytes;
  static constexpr unsigned kRowsAt = kKeptAt + kKept * kKeptBytes;
  static constexpr unsigned kBarriersAt = kRowsAt + kStages * kRowBytes;
  static constexpr unsigned kBytes = kBarriersAt + 128 + Tile::kAlignment;
  static_assert(kBytes <= 232448);
};

// The shared memory of a block. A stage's `loaded` speaks for its key tile too. Further barriers,
// by turn:
//   keys_used[i]     turn n: the owners need the n-th key tile of the buffer no more
//   scored[i]        turn n: the n-th dS^T of the buffer is there
//   scores_used[i]   turn n: nobody needs it any more
template <class Shape>
struct OnePassMemory : StagedMemory<Shape> {
  // A key tile's k, then its v.
  __device__ __forceinline__ unsigned keys(int step) const {
    return this->base + static_cast<unsigned>(step & 1) * Shape::kKeyBytes;
  }
  __device__ __forceinline__ unsigned keys_used(int step) const { return this->further(step & 1); }
  __device__ __forceinline__ unsigned scored(int step) const {
    return this->further(2 + (step & 1));
  }
  __device__ __forceinline__ unsigned scores_used(int step) const {
    return this->further(4 + (step & 1));
  }
  __device__ __forceinline__ void init() const {
    for (int stage = 0; stage < Shape::kStages; ++stage) {
      init_barrier(this->loaded(stage), 4);
      init_barrier(this->used(stage), 8);
    }
    for (int i = 0; i < 2; ++i) {
      init_barrier(keys_used(i), 8);
      init_barrier(scored(i), 8);
      init_barrier(scores_used(i), 4);
    }
  }
};

struct OnePass {
  int heads = 0, key_tiles = 0, query_tiles = 0;
  float* partial = nullptr;  // [blocks, query_tiles, 64 x 64], a tile in its threads' order

  // The first query tile of which some query sees `key`.
  __device__ __forceinline__ int first_seeing(const FlashCall& call, int key) const {
    return call.causal ? max(0, key - call.offset) / kPassQueries : 0;
  }
  // The last key tile of which some key is seen by the query tile.
  __device__ __forceinline__ int last_seen(const FlashCall& call, int query_tile) const {
    const int last = query_tile * kPassQueries + kPassQueries - 1 + call.offset;
    return call.causal ? min(key_tiles - 1, last / kPassKeys) : key_tiles - 1;
  }
};

// A place in the walk of a block. Every warpgroup makes the same one.
struct PassPlace {
  int head, key_tile = 0, query_tile, first_query_tile;
  int key_step = 0;  // key tiles so far

  __device__ __forceinline__ PassPlace(const FlashCall& call, const OnePass& pass)
      : head(static_cast<int>(blockIdx.x)) {
    first_query_tile = query_tile = pass.first_seeing(call, 0);
  }
  __device__ __forceinline__ void advance(const FlashCall& call, const OnePass& pass) {
    if (++query_tile < pass.query_tiles) return;
    ++key_step;
    if (++key_tile == pass.key_tiles) {
      key_tile = 0;
      head += static_cast<int>(gridDim.x);
    }
    first_query_tile = query_tile = pass.first_seeing(call, key_tile * kPassKeys);
  }
};

}  // namespace fovea::cuda
