#pragma once
// Local sums (sums.cu) of 16-bit numbers.

#include "kernels/cuda/linear/pairs.cuh"
#include "kernels/cuda/linear/products.cuh"

namespace fovea::cuda {

constexpr int kSumSlabs = 2;  // tiles of features that share a tile of values

// Local sums [128 features x 64 columns] of one chunk, one side: x^T (factor y)
// over its tokens, as local_sums_kernel has them. The next tokens come in
// meanwhile. Reads x once and y once for every 128 features, writes the sums
// once.
template <class T, bool kQueries, bool kPacked>
__global__ void __launch_bounds__(kTileThreads, 4)
    narrow_sums_kernel(const __grid_constant__ LinearCall call, const int which) {
  using Tile = SquareTile<T>;
  constexpr unsigned kStage = (kSumSlabs + 1) * Tile::kBytes;
  const unsigned base = aligned_shared_base();
  float* const factors = shared_pointer<float>(base + 2 * kStage);
  // What stands behind the values, in parts: of 64 tokens all high ones, then
  // all low ones.
  const unsigned behind = base + 2 * kStage + static_cast<unsigned>(call.chunk) * 4;
  const LanePlace at;
  const int slabs = call.padded_features / kTileSide, blocks = call.padded_values / kTileSide;
  const int groups = (slabs + kSumSlabs - 1) / kSumSlabs;
  const int chunks = kQueries ? call.query_chunks : call.key_chunks;
  const int heads = call.batch * call.states, head = static_cast<int>(blockIdx.x) % heads,
            place = static_cast<int>(blockIdx.x) / heads;
  const int slab = place % groups * kSumSlabs, block = place / groups % blocks,
            t = place / groups / blocks;
  const int s = head % call.states, b = head / call.states;
  const bool both = slab + 1 < slabs;
  const ScanSide& side = call.side[which];
  const ChunkSums& sums = kQueries ? side.queries : side.keys;
  const EdgeIds edges = edges_of(call, side, b, chunks, t);
  const int first = t * call.chunk;
  const int end = min(first + call.chunk, kQueries ? call.queries : call.keys);
  const int tiles = (end - first + kTileSide - 1) / kTileSide;
  const int steps = tiles * (kQueries ? call.group() : 1);
  const std::int64_t key_row = call.key_of(b, s);
  const Tokens& tokens = kQueries ? call.query_tokens : call.key_tokens;
  const auto counts = [&](int token) {
    return token < end && tokens.is_valid(b, token) &&
           (side.in == nullptr || tokens.segment(b, token) == (kQueries ? edges.in : edges.out));
  };
  const TileRows &x = kQueries ? call.a : call.b, &y_rows = kQueries ? call.dout : call.v;
  const T *x_part = nullptr, *y_part = nullptr;
  int h = s * call.group(),
      tile_ahead = 0;  // of the step that is brought in next
  const auto bring = [&](int step) {
    if (step < steps) {
      const int token = first + tile_ahead * kTileSide;
      const unsigned to = base + static_cast<unsigned>(step % 2) * kStage;
      if (tile_ahead == 0) {
        x_part = part_of<T>(
            x, kQueries ? call.a.at<const T>(b, h) : call.b.at<const T>(b, call.key_head(s)),
            first);
        y_part = part_of<T>(
            y_rows,
            kQueries ? call.dout.at<const T>(b, h) : call.v.at<const T>(b, call.value_head(s)),
            first);
      }
      const unsigned real = real_rows(token, end, counts);
      bring_tile<T, kPacked>(to, x, x_part, slab * kTileSide, real);
      if (both) bring_tile<T, kPacked>(to + Tile::kBytes, x, x_part, (slab + 1) * kTileSide, real);
      bring_tile<T, kPacked>(to + kSumSlabs * Tile::kBytes, y_rows, y_part, block * kTileSide,
                             real);
      x_part += kTileSide * x.row, y_part += kTileSide * y_rows.row;
      if (++tile_ahead == tiles) tile_ahead = 0, ++h;
    }
    commit_copies();
  };
  bring(0);
  const float last = call.decay == nullptr || kQueries ? 0.0f : call.gamma[key_row + end - 1];
  const float scale =
      kQueries ? call.rows.top[call.chunk_of(b, s, t, chunks)] : 1.0f;  // of all factors
  const bool plain = !kQueries && call.decay == nullptr && call.weight == nullptr;

  float out[kSumSlabs][8][4] = {}, column[kSumSlabs][4] = {};
  for (int step = 0, tile = 0; step < steps; ++step, tile = tile + 1 == tiles ? 0 : tile + 1) {
    if (tile == 0) {
      __syncthreads();
      const int head_here = s * call.group() + step / tiles;
      for (int i = static_cast<int>(threadIdx.x); i < call.chunk; i += kTileThreads) {
        const int token = first + i;
        float factor = 0, more = 0;
        if (counts(token)) {
          if constexpr (kQueries) {
            const std::int64_t row = call.row_of(b, head_here) + token;
            const float early = call.decay == nullptr ? 1.0f : exp2f(call.gamma[key_row + token]);
            factor = capped<T>(call.rows.rho[row] / scale) * early;
            more = -factor * call.rows.delta[row];
          } else {
            const float late =
                call.decay == nullptr ? 1.0f : exp2f(last - call.gamma[key_row + token]);
            factor = more = call.key_weight(key_row + token) * late;
          }
        }
        factors[i] = factor;
        const Parts<T> parts(more);
        T* const to = shared_pointer<T>(behind + static_cast<unsigned>(i / kTileSide) * 256);
        to[i % kTileSide] = parts.high, to[kTileSide + i % kTileSide] = parts.low;
      }
      __syncthreads();
    }
    bring(step + 1);
    const unsigned from = base + static_cast<unsigned>(step % 2) * kStage,
                   y = from + kSumSlabs * Tile::kBytes;
    wait_copies<1>();
    if (!plain) {  // each thread what it brought
      const int row = static_cast<int>(threadIdx.x) / 8, piece = static_cast<int>(threadIdx.x) % 8;
#pragma unroll
      for (int i = 0; i < kTileSide * 8 / kTileThreads; ++i) {
        const float by = factors[tile * kTileSide + row + 16 * i];
        float v[8];
        Tile::get8(v, y, row + 16 * i, piece);
#pragma unroll
        for (int e = 0; e < 8; ++e)
          v[e] *= by;
        Tile::put8(y, row + 16 * i, piece, v);
      }
    }
    await_tiles<1>();
    begin_products();
    add_product<T, Lies::by_columns, Lies::by_rows>(out[0], from, y, at);
    if (both) add_product<T, Lies::by_columns, Lies::by_rows>(out[1], from + Tile::kBytes, y, at);
    if (block == 0) {
#pragma unroll
      for (int i = 0; i < kSumSlabs; ++i) {
        if (i == 0 || both)
          add_column<T, Lies::by_columns>(column[i], from + static_cast<unsigned>(i) * Tile::kBytes,
                                          behind + static_cast<unsigned>(tile) * 256, at);
      }
    }
    end_products(out);
    __syncthreads();  // the next step's copies go where this one read
  }
  const std::int64_t entry = call.chunk_of(b, s, t, chunks);
#pragma unroll
  for (int i = 0; i < kSumSlabs; ++i) {
    if (slab + i >= slabs) continue;
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e)
        out[i][n][e] *= scale;
    }
    float* const to = sums.local +
                      (entry * call.padded_features + (slab + i) * kTileSide) * call.padded_values +
                      block * kTileSide;
    store_sums_packed(to, call.padded_values, kTileSide, kTileSide, out[i], at, false);
    float out_z[2];
    column_of(out_z, column[i], at);
    if (block == 0 && at.lane % 4 == 0) {
      float* const z = sums.local_z + entry * call.padded_features + (slab + i) * kTileSide;
      z[at.row(0)] = out_z[0] * scale;
      z[at.row(2)] = out_z[1] * scale;
    }
  }
}

template <class T, bool kQueries, bool kPacked>
void launch_narrow_sums(StreamRef stream, const LinearCall& call, int which) {
  const int chunks = kQueries ? call.query_chunks : call.key_chunks;
  const int groups = (call.padded_features / kTileSide + kSumSlabs - 1) / kSumSlabs;
  const unsigned bytes = 2 * (kSumSlabs + 1) * SquareTile<T>::kBytes +
                         2 * static_cast<unsigned>(call.chunk) * sizeof(float);
  const std::int64_t grid =
      std::int64_t{chunks} * groups * (call.padded_values / kTileSide) * call.batch * call.states;
  launch_shared(stream, "linear_attention sums", narrow_sums_kernel<T, kQueries, kPacked>,
                static_cast<unsigned>(grid), kTileThreads, bytes, call, which);
}

template <class T, bool kQueries>
void launch_narrow_sums(StreamRef stream, const LinearCall& call, int which) {
  if (kQueries ? is_packed(call.a, call.dout) : is_packed(call.b, call.v))
    launch_narrow_sums<T, kQueries, true>(stream, call, which);
  else
    launch_narrow_sums<T, kQueries, false>(stream, call, which);
}

}  // namespace fovea::cuda
