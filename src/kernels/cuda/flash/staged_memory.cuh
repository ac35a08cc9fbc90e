#pragma once
// What the backward kernels one_pass.cuh and ordered.cuh have in common of their shared memory:
// tiles of queries that go by in stages, score gradients in two buffers, and barriers.

#include "kernels/cuda/tile/wgmma.cuh"

namespace fovea::cuda {

// Shape names how many stages there are, and where the parts begin and how large each is. Its first
// barriers, by turn:
//   loaded[stage]  turn n: the n-th tile of queries of the stage is there
//   used[stage]    turn n: the owners of keys need it no more
template <class Shape>
struct StagedMemory {
  unsigned base;

  __device__ __forceinline__ StagedMemory() : base(tile_base()) {}
  // A query tile's q, then its dout.
  __device__ __forceinline__ unsigned queries(int stage) const {
    return base + Shape::kQueriesAt + static_cast<unsigned>(stage) * Shape::kStageBytes;
  }
  // dS^T of a step.
  __device__ __forceinline__ unsigned scores(int step) const {
    return base + Shape::kScoresAt + static_cast<unsigned>(step & 1) * Shape::kScoreBytes;
  }
  // lse and delta.
  __device__ __forceinline__ unsigned rows(int stage) const {
    return base + Shape::kRowsAt + static_cast<unsigned>(stage) * Shape::kRowBytes;
  }
  __device__ __forceinline__ unsigned barrier(int index) const {
    return base + Shape::kBarriersAt + static_cast<unsigned>(index) * 8;
  }
  __device__ __forceinline__ unsigned loaded(int stage) const { return barrier(stage); }
  __device__ __forceinline__ unsigned used(int stage) const {
    return barrier(Shape::kStages + stage);
  }
  // Barrier `index` of those behind them.
  __device__ __forceinline__ unsigned further(int index) const {
    return barrier(2 * Shape::kStages + index);
  }
};

}  // namespace fovea::cuda
