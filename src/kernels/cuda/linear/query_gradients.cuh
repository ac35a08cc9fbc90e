#pragma once
// Gradients of queries' features: da_i = rho_i (state (dout_i, -delta_i) + sum_j g_ij b_j).

#include "kernels/cuda/linear/call.cuh"
#include "kernels/cuda/linear/pairs.cuh"

namespace fovea::cuda {

// Makes the pairs' gradients of its tile of queries once and holds them; then walks the features.
// Reads states and keys from L2 after their first use; writes da once.
template <class T, int kBlocks>
__global__ void __launch_bounds__(kTileThreads, kTileBlocks<kBlocks>)
    query_gradients_kernel(const __grid_constant__ LinearCall call) {
  using Tile = SquareTile<T>;
  const unsigned dout_tiles = tile_base(), g_tiles = dout_tiles + kBlocks * Tile::kBytes,
                 x_tile = g_tiles + kMostTiles * Tile::kBytes, out_tile = x_tile + Tile::kBytes;
  KeyMarks keys(shared_pointer<float>(out_tile + SquareTile<float>::kBytes));
  const LanePlace at;
  const QueryPlace place(call);
  const int first = place.tile * kTileSide, b = place.b, h = place.h, s = h / call.group();
  const int t = first / call.chunk, slabs = call.padded_features / kTileSide;
  const auto is_key = [&](int j) { return call.key_tokens.is_valid(b, j) ? 1.0f : 0.0f; };
  const QueryMarks rows(call, b, s, first, at);
  float rho[2], delta[2];
  load_gradient_rows(rho, delta, call, b, h, first, at);
#pragma unroll
  for (int block = 0; block < kBlocks; ++block)
    load_tile<T>(dout_tiles + static_cast<unsigned>(block) * Tile::kBytes, call.dout,
                 call.dout.at<const T>(b, h), first, block * kTileSide,
                 [&](int i) { return call.query_tokens.is_valid(b, i) ? 1.0f : 0.0f; });

  const TileSpan span = key_tiles_of(call, place.tile);
  for (int tile = span.begin; tile < span.end; ++tile) {
    float g[8][4] = {};
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      __syncthreads();
      load_tile<T>(x_tile, call.v, call.v.at<const T>(b, call.value_head(s)), tile * kTileSide,
                   block * kTileSide, is_key);
      if (block == 0) keys.load(call, b, s, tile * kTileSide);
      __syncthreads();
      Tile::template product<Lies::by_rows, Lies::by_columns>(
          g, dout_tiles + static_cast<unsigned>(block) * Tile::kBytes, x_tile, at);
    }
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e)
        g[n][e] = (g[n][e] - delta[e / 2]) * rows.pair(call, e / 2, first + at.row(e), keys,
                                                       tile * kTileSide, at.column(n, e));
    }
    put_sums<T>(g_tiles + static_cast<unsigned>(tile - span.begin) * Tile::kBytes, g, at);
  }

  for (int slab = 0; slab < slabs; ++slab) {
    float da[8][4] = {};
    for (int which = 0; which < call.sides; ++which) {
      const ScanSide& side = call.side[which];
      const std::int64_t state = call.state_of(b, s, t);
      const T* states = static_cast<const T*>(side.keys.states) +
                        state * call.padded_features * call.padded_values +
                        std::int64_t{slab} * kTileSide * call.padded_values;
      const float undo = side.keys.undo[state];
      float seen[2];
      rows.seen(seen, side, edges_of(call, side, b, call.key_chunks, t).in);
      float part[8][4] = {};
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
        __syncthreads();
        load_padded<T>(x_tile, states + block * kTileSide, call.padded_values);
        __syncthreads();
        Tile::template product<Lies::by_rows, Lies::by_columns>(
            part, dout_tiles + static_cast<unsigned>(block) * Tile::kBytes, x_tile, at);
      }
      const float* z = side.keys.z + state * call.padded_features + slab * kTileSide;
#pragma unroll
      for (int n = 0; n < 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e)
          da[n][e] += seen[e / 2] * (undo * part[n][e] - delta[e / 2] * z[at.column(n, e)]);
      }
    }
    for (int tile = span.begin; tile < span.end; ++tile) {
      __syncthreads();
      load_tile<T>(x_tile, call.b, call.b.at<const T>(b, call.key_head(s)), tile * kTileSide,
                   slab * kTileSide, is_key);
      __syncthreads();
      Tile::template product<Lies::by_rows, Lies::by_rows>(
          da, g_tiles + static_cast<unsigned>(tile - span.begin) * Tile::kBytes, x_tile, at);
    }
    scale_each_row(da, rho);
    store_sums<float>(out_tile, call.da, call.da.at<float>(b, h), first, slab * kTileSide, da, at,
                      false);
  }
}

template <class T, int kBlocks>
void launch_query_gradients(StreamRef stream, const LinearCall& call) {
  const unsigned bytes = (kBlocks + kMostTiles + 1) * SquareTile<T>::kBytes +
                         SquareTile<float>::kBytes + KeyMarks::kFloats * sizeof(float) + 1024;
  const std::int64_t blocks = std::int64_t{call.batch} * call.heads * call.query_tiles();
  launch_shared(stream, "linear_attention query gradients", query_gradients_kernel<T, kBlocks>,
                static_cast<unsigned>(blocks), kTileThreads, bytes, call);
}

template <class T>
void linear_query_gradients(StreamRef stream, const LinearCall& call) {
  for_value_blocks(
      call, [&](auto blocks) { launch_query_gradients<T, decltype(blocks)::value>(stream, call); });
}

}  // namespace fovea::cuda
