#pragma once
// A team is a warp or a whole block that shares one row: short rows would leave a block idle.

#include "kernels/cuda/tile/reduce.cuh"

namespace fovea::cuda {

constexpr int kTeamBlock = 256;      // threads of a block, whatever the team
constexpr int kTeamWarpMost = 1024;  // columns up to which a warp has the row

template <int kTeam>
constexpr int kTeamsPerBlock = kTeamBlock / kTeam;

template <int kTeam>
struct Team {
  static_assert(kTeam == kWarp || kTeam == kTeamBlock, "a team is a warp or a block");
  // The thread's place in its team, and the team's row; a team past the last row has none.
  int lane;
  std::int64_t row;
  float* shared;  // one value a warp; unused by warps

  __device__ __forceinline__ explicit Team(float* warps)
      : lane(static_cast<int>(threadIdx.x) % kTeam),
        row(std::int64_t{blockIdx.x} * kTeamsPerBlock<kTeam> +
            static_cast<int>(threadIdx.x) / kTeam),
        shared(warps) {}
  __device__ __forceinline__ float sum(float value) const {
    if constexpr (kTeam == kWarp)
      return warp_sum(value);
    else
      return block_sum<kTeam>(value, shared);
  }
  __device__ __forceinline__ float max(float value) const {
    if constexpr (kTeam == kWarp)
      return warp_max(value);
    else
      return block_max<kTeam>(value, shared);
  }
};

template <int kSize>
struct TeamSize {
  static constexpr int value = kSize;
};

// Calls fn(TeamSize<threads>, blocks) with the team for rows of `cols` elements.
template <class F>
void for_team(std::int64_t rows, std::int64_t cols, F&& fn) {
  if (cols <= kTeamWarpMost)
    fn(TeamSize<kWarp>{}, blocks_for(rows, kTeamsPerBlock<kWarp>));
  else
    fn(TeamSize<kTeamBlock>{}, blocks_for(rows, 1));
}

}  // namespace fovea::cuda
