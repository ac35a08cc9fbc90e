#pragma once
// What the kernels share that serve 16-bit values of at most one tile and states of one side: they
// keep pairs in registers and bring operands in while they multiply.

#include "kernels/cuda/linear/pairs.cuh"
#include "kernels/cuda/linear/products.cuh"

namespace fovea::cuda {

// Depends on nothing that may differ between two calls about the same row.
inline bool is_narrow(const LinearCall& call) {
  return call.padded_values == kTileSide && call.sides == 1;
}

// The room for what a kernel keeps of each tile; there are no arrays of none.
constexpr int room_for(int tiles) {
  return tiles > 0 ? tiles : 1;
}

// What the keys of a chunk bring to pairs, in shared memory.
template <int kKeyTiles>
struct PairMarks {
  static constexpr int kKeys = kKeyTiles * kTileSide;
  static constexpr unsigned kBytes = 2 * kKeys * sizeof(float);
  float* value;  // 2^weight; with decay weight - decay up to the key. Of no key: what makes pairs 0
  int* segment;

  __device__ __forceinline__ explicit PairMarks(unsigned at)
      : value(shared_pointer<float>(at)), segment(shared_pointer<int>(at + kKeys * 4)) {}

  // For the block; to be read after a barrier.
  __device__ __forceinline__ void load(const LinearCall& call, int b, int s, int first) const {
    const int i = static_cast<int>(threadIdx.x), token = first + i;
    if (i >= kKeys) return;
    const bool exists = token < call.keys && call.key_tokens.is_valid(b, token);
    const std::int64_t key = call.key_of(b, s) + token;
    if (call.decay == nullptr)
      value[i] = exists ? call.key_weight(key) : 0.0f;
    else
      value[i] = exists ? (call.weight == nullptr ? 0.0f : call.weight[key]) - call.gamma[key]
                        : -__builtin_huge_valf();
    segment[i] = exists ? call.key_tokens.segment(b, token) : 0;
  }

  // The factor of the pair of a lane's query and key (n, e) of tile k. `diagonal`: the tile's keys
  // are the block's queries, and only those up to a query count.
  __device__ __forceinline__ float pair(const LinearCall& call, const QueryMarks& rows,
                                        LanePlace at, int k, int n, int e, bool diagonal) const {
    const int j = at.column(n, e), r = e / 2;
    float by = value[k * kTileSide + j];
    if (call.decay != nullptr) by = exp2_fast(rows.gamma[r] + by);
    if (diagonal && j > at.row(e)) by = 0;
    if (call.key_tokens.segments != nullptr && segment[k * kTileSide + j] != rows.segment[r])
      by = 0;
    return by;
  }
};

}  // namespace fovea::cuda
