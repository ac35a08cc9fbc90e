#pragma once
// What the kernels share that serve 16-bit values of at most one tile and
// states of one side: they keep pairs in registers and bring operands in while
// they multiply.

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

// real_rows of each of kTiles tiles of `count` tokens, the first at tile `first`.
template <int kTiles, class F>
__device__ __forceinline__ void real_rows_of_tiles(unsigned (&bits)[room_for(kTiles)], int first,
                                                   int count, F real) {
#pragma unroll
  for (int i = 0; i < kTiles; ++i)
    bits[i] = real_rows((first + i) * kTileSide, count, real);
}

// Bits 4 n of the blocks of eight columns whose first is at most `most`.
__device__ __forceinline__ unsigned blocks_up_to(int most) {
  return most < 0 ? 0u : 0x11111111u & (~0u >> (28 - 4 * (most / 8)));
}

// The pairs of a tile that count, a lane's bit 4 n + e: where `diagonal`, rows
// and columns are the same tokens and only pairs up to the query count;
// `segments` of the columns, null: all are one.
template <bool kRowsAreKeys>
__device__ __forceinline__ unsigned counted_pairs(bool diagonal, const int* segments,
                                                  const int (&own)[2], LanePlace at) {
  unsigned bits = ~0u;
  if (diagonal) {
    bits = 0;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int most = at.row(e) - at.column(0, e);
      bits |= (kRowsAreKeys ? 0x11111111u ^ blocks_up_to(most - 1) : blocks_up_to(most)) << e;
    }
  }
  if (segments == nullptr) return bits;
#pragma unroll 1
  for (int n = 0; n < 8; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      if (segments[at.column(n, e)] != own[e / 2]) bits &= ~(1u << (4 * n + e));
    }
  }
  return bits;
}
__device__ __forceinline__ bool counts(unsigned pairs, int n, int e) {
  return (pairs >> (4 * n + e) & 1) != 0;
}

// What the keys of a chunk bring to pairs, in shared memory.
template <int kKeyTiles>
struct PairMarks {
  static constexpr int kKeys = kKeyTiles * kTileSide;
  static constexpr unsigned kBytes = 2 * kKeys * sizeof(float);
  float* late;  // weight - decay up to the key, log2; -inf for no key
  int* segment;

  __device__ __forceinline__ explicit PairMarks(unsigned at)
      : late(shared_pointer<float>(at)), segment(shared_pointer<int>(at + kKeys * 4)) {}

  // For the block; to be read after a barrier.
  __device__ __forceinline__ void load(const LinearCall& call, int b, int s, int first) const {
    const int i = static_cast<int>(threadIdx.x), token = first + i;
    if (i >= kKeys) return;
    const bool exists = token < call.keys && call.key_tokens.is_valid(b, token);
    const std::int64_t key = call.key_of(b, s) + token;
    float sum = exists ? 0.0f : -__builtin_huge_valf();
    if (exists && call.weight != nullptr) sum = call.weight[key];
    if (exists && call.decay != nullptr) sum -= call.gamma[key];
    late[i] = sum;
    segment[i] = exists ? call.key_tokens.segment(b, token) : 0;
  }
  __device__ __forceinline__ unsigned counted(const LinearCall& call, const QueryMarks& rows,
                                              LanePlace at, int k, bool diagonal) const {
    return counted_pairs<false>(
        diagonal, call.key_tokens.segments == nullptr ? nullptr : segment + k * kTileSide,
        rows.segment, at);
  }
  // The factors of the pairs of a lane's two queries and its two keys at n of
  // tile k.
  __device__ __forceinline__ void factors(float (&by)[4], const QueryMarks& rows, LanePlace at,
                                          int k, int n) const {
    const float2 two = *reinterpret_cast<const float2*>(late + k * kTileSide + at.column(n, 0));
#pragma unroll
    for (int e = 0; e < 4; ++e)
      by[e] = exp2_fast(rows.gamma[e / 2] + (e % 2 == 0 ? two.x : two.y));
  }
};

}  // namespace fovea::cuda
