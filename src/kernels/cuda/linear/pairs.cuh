#pragma once
// Pairs of queries and keys inside a chunk: which ones count, and by how much.

#include "kernels/cuda/linear/call.cuh"

namespace fovea::cuda {

constexpr int kMostTiles = 2;  // of a chunk whose pairs count

// Blocks that share a multiprocessor, by tiles of values.
template <int kBlocks>
constexpr int kTileBlocks = kBlocks == 1   ? 3
                            : kBlocks == 2 ? 2
                                           : 1;

// Which tile of queries of which head a block has. Neighbours have the same tokens of all heads:
// those lie side by side in memory.
struct QueryPlace {
  int tile, b, h;
  __device__ __forceinline__ explicit QueryPlace(const LinearCall& call) {
    const int tiles = call.query_tiles();
    const int at = static_cast<int>(blockIdx.x);
    h = at % call.heads;
    tile = at / call.heads % tiles;
    b = at / call.heads / tiles;
  }
};

struct TileSpan {
  int begin, end;
};

// The tiles of the other side that meet a tile inside its chunk.
__device__ __forceinline__ TileSpan key_tiles_of(const LinearCall& call, int query_tile) {
  if (!call.pairs) return {0, 0};
  const int per_chunk = call.chunk / kTileSide, begin = query_tile / per_chunk * per_chunk;
  const int all = call.key_tiles();
  return {begin, min(all, call.causal ? query_tile + 1 : begin + per_chunk)};
}
__device__ __forceinline__ TileSpan query_tiles_of(const LinearCall& call, int key_tile) {
  if (!call.pairs) return {0, 0};
  const int per_chunk = call.chunk / kTileSide, begin = key_tile / per_chunk * per_chunk;
  const int all = call.query_tiles();
  return {call.causal ? key_tile : begin, min(all, begin + per_chunk)};
}

// What 64 keys bring to a pair, in shared memory.
struct KeyMarks {
  static constexpr int kFloats = 3 * kTileSide;
  float *weight, *gamma;  // 2^weight, 0 for a key that does not exist; decay up to it
  int* segment;

  __device__ explicit KeyMarks(float* memory)
      : weight(memory),
        gamma(memory + kTileSide),
        segment(reinterpret_cast<int*>(memory + 2 * kTileSide)) {}
  // For the block; to be read after a barrier.
  __device__ __forceinline__ void load(const LinearCall& call, int b, int s, int first) const {
    if (threadIdx.x >= kTileSide) return;
    const int token = first + static_cast<int>(threadIdx.x);
    const bool exists = token < call.keys && call.key_tokens.is_valid(b, token);
    const std::int64_t key = call.key_of(b, s) + token;
    weight[threadIdx.x] = exists ? call.key_weight(key) : 0.0f;
    gamma[threadIdx.x] = exists && call.decay != nullptr ? call.gamma[key] : 0.0f;
    segment[threadIdx.x] = exists ? call.key_tokens.segment(b, token) : 0;
  }
};

// What a lane's two rows bring; rows are queries.
struct QueryMarks {
  float gamma[2] = {};
  int segment[2] = {};

  __device__ __forceinline__ QueryMarks(const LinearCall& call, int b, int s, int first,
                                        LanePlace at) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int token = first + at.row(2 * r);
      if (token >= call.queries) continue;
      if (call.decay != nullptr) gamma[r] = call.gamma[call.key_of(b, s) + token];
      segment[r] = call.query_tokens.segment(b, token);
    }
  }
  // What a state gives to a row: 0 where its segment is another, else its decay since the chunk
  // began.
  __device__ __forceinline__ void seen(float (&factor)[2], const ScanSide& side, int edge) const {
#pragma unroll
    for (int r = 0; r < 2; ++r)
      factor[r] = side.in != nullptr && segment[r] != edge ? 0.0f : exp2f(gamma[r]);
  }
  // The factor of the pair (query, key j of `keys`, which begin at `first_key`).
  __device__ __forceinline__ float pair(const LinearCall& call, int r, int query,
                                        const KeyMarks& keys, int first_key, int j) const {
    if (call.causal && first_key + j > query) return 0.0f;
    if (call.key_tokens.segments != nullptr && keys.segment[j] != segment[r]) return 0.0f;
    const float weight = keys.weight[j];
    return call.decay == nullptr ? weight : weight * exp2_fast(gamma[r] - keys.gamma[j]);
  }
};

// rho and delta (QueryRows) of a lane's two rows; 0 past the end.
__device__ __forceinline__ void load_gradient_rows(float (&rho)[2], float (&delta)[2],
                                                   const LinearCall& call, int b, int h, int first,
                                                   LanePlace at) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    rho[r] = delta[r] = 0;
    const int token = first + at.row(2 * r);
    if (token >= call.queries) continue;
    rho[r] = call.rows.rho[call.row_of(b, h) + token];
    delta[r] = call.rows.delta[call.row_of(b, h) + token];
  }
}

// The valid keys of a sample, for sqrt_n.
__device__ inline float total_count(const LinearCall& call, int b, int s) {
  float count = 0;
  for (int t = 0; t < call.key_chunks; ++t)
    count += call.counts[call.chunk_of(b, s, t, call.key_chunks)];
  return count;
}

// One of an enumeration, known where it is handed over.
template <class E, E kValue>
struct Kind {
  static constexpr E value = kValue;
};

template <int kCount>
struct Blocks {
  static constexpr int value = kCount;
};

// Calls fn with the number of tiles that the values' width takes: 1, 2 or 4.
template <class F>
void for_value_blocks(const LinearCall& call, F&& fn) {
  switch (call.padded_values / kTileSide) {
    case 1:
      return fn(Blocks<1>{});
    case 2:
      return fn(Blocks<2>{});
    default:
      return fn(Blocks<4>{});
  }
}

}  // namespace fovea::cuda
