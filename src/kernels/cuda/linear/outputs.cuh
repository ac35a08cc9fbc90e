#pragma once
// Outputs of a tile of 64 queries: what its state gives, and the pairs inside its chunk.

#include "kernels/cuda/linear/call.cuh"
#include "kernels/cuda/linear/pairs.cuh"

namespace fovea::cuda {

// den of a lane's two rows, and what their sums are multiplied by.
__device__ __forceinline__ void finish_rows(float (&inverse)[2], const LinearCall& call, int b,
                                            int s, int h, int first, const float (&mass)[2],
                                            LanePlace at) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float den = mass[r], by = fmaxf(mass[r], call.floor);
    if (call.normaliser == Normaliser::add) den = by = mass[r] + call.floor;
    if (call.normaliser == Normaliser::sqrt_n) {
      const float count = total_count(call, b, s);
      den = by = count > 0 ? sqrtf(count) : 1.0f;
    }
    const int token = first + at.row(2 * r);
    if (at.lane % 4 == 0 && token < call.queries) call.den[call.row_of(b, h) + token] = den;
    inverse[r] = 1.0f / by;
  }
}

// A block of 64 values of o and its rounding, through `tile`.
template <class T>
__device__ __forceinline__ void store_outputs(const LinearCall& call, int b, int h, int first,
                                              int block, float (&o)[8][4],
                                              const float (&inverse)[2], unsigned tile,
                                              LanePlace at) {
  scale_each_row(o, inverse);
  store_sums<T>(tile, call.o, call.o.at<T>(b, h), first, block * kTileSide, o, at, false);
  if (call.rounding.data == nullptr) return;
#pragma unroll
  for (int n = 0; n < 8; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e)
      o[n][e] -= to_float(from_float<T>(o[n][e]));
  }
  store_sums<T>(tile, call.rounding, call.rounding.at<T>(b, h), first, block * kTileSide, o, at,
                false);
}

// Reads a's tile once for the state and once for every tile of keys in the chunk, states and keys
// from L2 after their first use; writes o and den once.
template <class T, int kBlocks>
__global__ void __launch_bounds__(kTileThreads, kTileBlocks<kBlocks>)
    outputs_kernel(const __grid_constant__ LinearCall call) {
  using Tile = SquareTile<T>;
  const unsigned a_tile = tile_base(), x_tile = a_tile + Tile::kBytes,
                 w_tile = x_tile + Tile::kBytes;
  float* z = shared_pointer<float>(w_tile + Tile::kBytes);
  KeyMarks keys(z + kTileSide);
  const LanePlace at;
  const QueryPlace place(call);
  const int first = place.tile * kTileSide, b = place.b, h = place.h, s = h / call.group();
  const int t = first / call.chunk, slabs = call.padded_features / kTileSide;
  const T* a = call.a.at<const T>(b, h);
  const auto is_query = [&](int token) {
    return call.query_tokens.is_valid(b, token) ? 1.0f : 0.0f;
  };
  const QueryMarks rows(call, b, s, first, at);

  float o[kBlocks][8][4] = {}, mass[2] = {};
  for (int which = 0; which < call.sides; ++which) {
    const ScanSide& side = call.side[which];
    const std::int64_t state = call.state_of(b, s, t);
    const T* states =
        static_cast<const T*>(side.keys.states) + state * call.padded_features * call.padded_values;
    const float undo = side.keys.undo[state];
    const EdgeIds edges = edges_of(call, side, b, call.key_chunks, t);
    float seen[2], column[2] = {};
    rows.seen(seen, side, edges.in);
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      float part[8][4] = {};
      for (int slab = 0; slab < slabs; ++slab) {
        __syncthreads();
        load_tile<T>(a_tile, call.a, a, first, slab * kTileSide, is_query);
        load_padded<T>(
            x_tile,
            states + std::int64_t{slab} * kTileSide * call.padded_values + block * kTileSide,
            call.padded_values);
        if (block == 0 && threadIdx.x < kTileSide)
          z[threadIdx.x] =
              side.keys.z[state * call.padded_features + slab * kTileSide + threadIdx.x] / undo;
        __syncthreads();
        Tile::template product<Lies::by_rows, Lies::by_rows>(part, a_tile, x_tile, at);
        if (block == 0) Tile::template times_vector<Lies::by_rows>(column, a_tile, z, at);
      }
#pragma unroll
      for (int n = 0; n < 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e)
          o[block][n][e] = fmaf(part[n][e], undo * seen[e / 2], o[block][n][e]);
      }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r)
      mass[r] = fmaf(column[r], undo * seen[r], mass[r]);
  }

  const TileSpan span = key_tiles_of(call, place.tile);
  for (int tile = span.begin; tile < span.end; ++tile) {
    float w[8][4] = {};
    for (int slab = 0; slab < slabs; ++slab) {
      __syncthreads();
      load_tile<T>(a_tile, call.a, a, first, slab * kTileSide, is_query);
      load_tile<T>(x_tile, call.b, call.b.at<const T>(b, call.key_head(s)), tile * kTileSide,
                   slab * kTileSide,
                   [&](int j) { return call.key_tokens.is_valid(b, j) ? 1.0f : 0.0f; });
      if (slab == 0) keys.load(call, b, s, tile * kTileSide);
      __syncthreads();
      Tile::template product<Lies::by_rows, Lies::by_columns>(w, a_tile, x_tile, at);
    }
    // Rounded before they are added up, so that numerator and denominator are of the same weights.
    float sum[2] = {};
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float weight = w[n][e] * rows.pair(call, e / 2, first + at.row(e), keys,
                                                 tile * kTileSide, at.column(n, e));
        w[n][e] = to_float(from_float<T>(weight));
        sum[e / 2] += w[n][e];
      }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r)
      mass[r] += quad_sum(sum[r]);
    put_sums<T>(w_tile, w, at);
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      __syncthreads();
      load_tile<T>(x_tile, call.v, call.v.at<const T>(b, call.value_head(s)), tile * kTileSide,
                   block * kTileSide,
                   [&](int j) { return call.key_tokens.is_valid(b, j) ? 1.0f : 0.0f; });
      __syncthreads();
      Tile::template product<Lies::by_rows, Lies::by_rows>(o[block], w_tile, x_tile, at);
    }
  }

  float inverse[2];
  finish_rows(inverse, call, b, s, h, first, mass, at);
#pragma unroll
  for (int block = 0; block < kBlocks; ++block)
    store_outputs<T>(call, b, h, first, block, o[block], inverse, w_tile, at);
}

template <class T, int kBlocks>
void launch_outputs(StreamRef stream, const LinearCall& call) {
  const unsigned bytes =
      3 * SquareTile<T>::kBytes + (kTileSide + KeyMarks::kFloats) * sizeof(float) + 1024;
  const std::int64_t blocks = std::int64_t{call.batch} * call.heads * call.query_tiles();
  launch_shared(stream, "linear_attention outputs", outputs_kernel<T, kBlocks>,
                static_cast<unsigned>(blocks), kTileThreads, bytes, call);
}

template <class T>
void linear_outputs(StreamRef stream, const LinearCall& call) {
  for_value_blocks(call,
                   [&](auto blocks) { launch_outputs<T, decltype(blocks)::value>(stream, call); });
}

}  // namespace fovea::cuda
