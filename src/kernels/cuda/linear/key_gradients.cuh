#pragma once
// Gradients of keys' features and of values.

#include "kernels/cuda/linear/call.cuh"
#include "kernels/cuda/linear/pairs.cuh"

namespace fovea::cuda {

// A tile of keys of one value head, with all states that read it, one after the other, so that
// every sum over them has one order. For each state and each query head on it: the pairs with
// queries of the chunk, turned over, their sums of dout into dv, then along the features. Reads
// queries and states from L2 after their first use; writes dv once, db once a query head.
template <class T, int kBlocks>
__global__ void __launch_bounds__(kTileThreads, kBlocks == 1 ? 2 : 1)
    key_gradients_kernel(const __grid_constant__ LinearCall call) {
  using Tile = SquareTile<T>;
  const unsigned v_tiles = tile_base(), g_tiles = v_tiles + kBlocks * Tile::kBytes,
                 w_tile = g_tiles + kMostTiles * Tile::kBytes, x_tile = w_tile + Tile::kBytes,
                 y_tile = x_tile + Tile::kBytes, out_tile = y_tile + Tile::kBytes;
  float* marks = shared_pointer<float>(out_tile + SquareTile<float>::kBytes);
  float *rho = marks, *delta = marks + kTileSide, *gamma = marks + 2 * kTileSide;
  int* segment = reinterpret_cast<int*>(marks + 3 * kTileSide);
  const LanePlace at;
  const int tiles = call.key_tiles();
  const int tile = static_cast<int>(blockIdx.x) % tiles,
            hv = static_cast<int>(blockIdx.x) / tiles % call.value_heads,
            b = static_cast<int>(blockIdx.x) / tiles / call.value_heads;
  const int first = tile * kTileSide, t = first / call.chunk;
  const int slabs = call.padded_features / kTileSide, group = call.group();
  const auto is_key = [&](int j) { return call.key_tokens.is_valid(b, j) ? 1.0f : 0.0f; };
  const auto is_query = [&](int i) { return call.query_tokens.is_valid(b, i) ? 1.0f : 0.0f; };
  int own_segment[2] = {};
  bool exists[2] = {};
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int token = first + at.row(2 * r);
    exists[r] = token < call.keys && call.key_tokens.is_valid(b, token);
    if (exists[r]) own_segment[r] = call.key_tokens.segment(b, token);
  }
#pragma unroll
  for (int block = 0; block < kBlocks; ++block)
    load_tile<T>(v_tiles + static_cast<unsigned>(block) * Tile::kBytes, call.v,
                 call.v.at<const T>(b, hv), first, block * kTileSide, is_key);

  float dv[kBlocks][8][4] = {};
  const int per_value = call.states / call.value_heads, per_key = call.states / call.key_heads;
  const TileSpan span = query_tiles_of(call, tile);
  for (int s = hv * per_value; s < (hv + 1) * per_value; ++s) {
    const T* b_rows = call.b.at<const T>(b, call.key_head(s));
    const float top =
        call.rows.top[call.chunk_of(b, s, t < call.query_chunks ? t : 0, call.query_chunks)];
    float weight[2] = {}, own_gamma[2] = {}, late = 0;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (!exists[r]) continue;
      const std::int64_t key = call.key_of(b, s) + first + at.row(2 * r);
      weight[r] = call.key_weight(key);
      if (call.decay != nullptr) own_gamma[r] = call.gamma[key];
    }
    if (call.decay != nullptr)
      late = call.gamma[call.key_of(b, s) + min(t * call.chunk + call.chunk, call.keys) - 1];
    // What later queries give to a key, by their state.
    const auto reached = [&](float(&factor)[2], const ScanSide& side) {
      const int edge = edges_of(call, side, b, call.key_chunks, t).out;
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const bool passes = exists[r] && (side.in == nullptr || own_segment[r] == edge);
        factor[r] = !passes                 ? 0.0f
                    : call.decay == nullptr ? weight[r]
                                            : weight[r] * exp2f(late - own_gamma[r]);
      }
    };
    for (int which = 0; which < call.sides; ++which) {
      const ScanSide& side = call.side[which];
      const std::int64_t state = call.state_of(b, s, t);
      const T* states = static_cast<const T*>(side.queries.states) +
                        state * call.padded_features * call.padded_values;
      float factor[2];
      reached(factor, side);
      const float undo = side.queries.undo[state];
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
        float part[8][4] = {};
        for (int slab = 0; slab < slabs; ++slab) {
          __syncthreads();
          load_tile<T>(x_tile, call.b, b_rows, first, slab * kTileSide, is_key);
          load_padded<T>(
              y_tile,
              states + std::int64_t{slab} * kTileSide * call.padded_values + block * kTileSide,
              call.padded_values);
          __syncthreads();
          Tile::template product<Lies::by_rows, Lies::by_rows>(part, x_tile, y_tile, at);
        }
#pragma unroll
        for (int n = 0; n < 8; ++n) {
#pragma unroll
          for (int e = 0; e < 4; ++e)
            dv[block][n][e] = fmaf(part[n][e], undo * factor[e / 2], dv[block][n][e]);
        }
      }
    }

    for (int head = 0; head < group; ++head) {
      const int h = s * group + head;
      const T* a_rows = call.a.at<const T>(b, h);
      for (int other = span.begin; other < span.end; ++other) {
        float w[8][4] = {}, g[8][4] = {};
        for (int slab = 0; slab < slabs; ++slab) {
          __syncthreads();
          load_tile<T>(x_tile, call.b, b_rows, first, slab * kTileSide, is_key);
          load_tile<T>(y_tile, call.a, a_rows, other * kTileSide, slab * kTileSide, is_query);
          if (slab == 0 && threadIdx.x < kTileSide) {
            const int token = other * kTileSide + static_cast<int>(threadIdx.x);
            const bool real = token < call.queries;
            const std::int64_t row = call.row_of(b, h) + token;
            rho[threadIdx.x] = real ? capped<T>(call.rows.rho[row] / top) : 0.0f;
            delta[threadIdx.x] = real ? call.rows.delta[row] : 0.0f;
            gamma[threadIdx.x] =
                real && call.decay != nullptr ? call.gamma[call.key_of(b, s) + token] : 0.0f;
            segment[threadIdx.x] = real ? call.query_tokens.segment(b, token) : 0;
          }
          __syncthreads();
          Tile::template product<Lies::by_rows, Lies::by_columns>(w, x_tile, y_tile, at);
        }
#pragma unroll
        for (int block = 0; block < kBlocks; ++block) {
          __syncthreads();
          load_tile<T>(y_tile, call.dout, call.dout.at<const T>(b, h), other * kTileSide,
                       block * kTileSide, is_query);
          __syncthreads();
          Tile::template product<Lies::by_rows, Lies::by_columns>(
              g, v_tiles + static_cast<unsigned>(block) * Tile::kBytes, y_tile, at);
        }
#pragma unroll
        for (int n = 0; n < 8; ++n) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const int r = e / 2, i = at.column(n, e);
            const bool seen = !(call.causal && first + at.row(e) > other * kTileSide + i) &&
                              (call.key_tokens.segments == nullptr || segment[i] == own_segment[r]);
            float factor = seen ? weight[r] * rho[i] : 0.0f;
            // Not where it is zero: queries past the end have no decay, and 2^-own_gamma may be
            // infinite.
            if (call.decay != nullptr && factor != 0) factor *= exp2_fast(gamma[i] - own_gamma[r]);
            w[n][e] = within<T>(w[n][e] * factor);
            g[n][e] = within<T>((g[n][e] - delta[i]) * factor);
          }
        }
        put_sums<T>(w_tile, w, at);
        put_sums<T>(g_tiles + static_cast<unsigned>(other - span.begin) * Tile::kBytes, g, at);
        // y_tile holds the last block of dout.
#pragma unroll
        for (int block = kBlocks - 1; block >= 0; --block) {
          __syncthreads();
          if (block != kBlocks - 1) {
            load_tile<T>(y_tile, call.dout, call.dout.at<const T>(b, h), other * kTileSide,
                         block * kTileSide, is_query);
            __syncthreads();
          }
          float part[8][4] = {};
          Tile::template product<Lies::by_rows, Lies::by_rows>(part, w_tile, y_tile, at);
#pragma unroll
          for (int n = 0; n < 8; ++n) {
#pragma unroll
            for (int e = 0; e < 4; ++e)
              dv[block][n][e] = fmaf(part[n][e], top, dv[block][n][e]);
          }
        }
      }

      if (call.db.data == nullptr) continue;
      for (int slab = 0; slab < slabs; ++slab) {
        float db[8][4] = {};
        for (int which = 0; which < call.sides && head == 0; ++which) {
          const ScanSide& side = call.side[which];
          const std::int64_t state = call.state_of(b, s, t);
          const T* states = static_cast<const T*>(side.queries.states) +
                            state * call.padded_features * call.padded_values +
                            std::int64_t{slab} * kTileSide * call.padded_values;
          float factor[2], part[8][4] = {};
          reached(factor, side);
          const float undo = side.queries.undo[state];
#pragma unroll
          for (int block = 0; block < kBlocks; ++block) {
            __syncthreads();
            load_padded<T>(y_tile, states + block * kTileSide, call.padded_values);
            __syncthreads();
            Tile::template product<Lies::by_rows, Lies::by_columns>(
                part, v_tiles + static_cast<unsigned>(block) * Tile::kBytes, y_tile, at);
          }
          const float* z = side.queries.z + state * call.padded_features + slab * kTileSide;
#pragma unroll
          for (int n = 0; n < 8; ++n) {
#pragma unroll
            for (int e = 0; e < 4; ++e)
              db[n][e] += factor[e / 2] * (undo * part[n][e] + z[at.column(n, e)]);
          }
        }
        float part[8][4] = {};
        for (int other = span.begin; other < span.end; ++other) {
          __syncthreads();
          load_tile<T>(y_tile, call.a, a_rows, other * kTileSide, slab * kTileSide, is_query);
          __syncthreads();
          Tile::template product<Lies::by_rows, Lies::by_rows>(
              part, g_tiles + static_cast<unsigned>(other - span.begin) * Tile::kBytes, y_tile, at);
        }
#pragma unroll
        for (int n = 0; n < 8; ++n) {
#pragma unroll
          for (int e = 0; e < 4; ++e)
            db[n][e] = fmaf(part[n][e], top, db[n][e]);
        }
        const bool first_part = head == 0 && (call.db_of_states || s % per_key == 0);
        store_sums<float>(out_tile, call.db,
                          call.db.at<float>(b, call.db_of_states ? s : call.key_head(s)), first,
                          slab * kTileSide, db, at, !first_part);
      }
    }
  }
  if (call.dv.data == nullptr) return;
#pragma unroll
  for (int block = 0; block < kBlocks; ++block)
    store_sums<T>(w_tile, call.dv, call.dv.at<T>(b, hv), first, block * kTileSide, dv[block], at,
                  false);
}

template <class T, int kBlocks>
void launch_key_gradients(StreamRef stream, const LinearCall& call) {
  const unsigned bytes = (kBlocks + kMostTiles + 3) * SquareTile<T>::kBytes +
                         SquareTile<float>::kBytes + 4 * kTileSide * sizeof(float) + 1024;
  const std::int64_t blocks = std::int64_t{call.batch} * call.value_heads * call.key_tiles();
  launch_shared(stream, "linear_attention key gradients", key_gradients_kernel<T, kBlocks>,
                static_cast<unsigned>(blocks), kTileThreads, bytes, call);
}

template <class T>
void linear_key_gradients(StreamRef stream, const LinearCall& call) {
  for_value_blocks(
      call, [&](auto blocks) { launch_key_gradients<T, decltype(blocks)::value>(stream, call); });
}

}  // namespace fovea::cuda
