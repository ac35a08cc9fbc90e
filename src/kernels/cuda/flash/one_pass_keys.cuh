#pragma once
// The two warpgroups of the one-pass backward kernel (one_pass.cuh) that own keys, 64 each: they
// make the scores, dK and dV.
//
// Products of a step in the order of their groups: S^T and dP^T, then dV, then dK. While one owner
// takes exponentials the tensor cores work for the other or for the third warpgroup; dK of a step
// and S^T of the next are under way together.

#include "kernels/cuda/flash/one_pass_plan.cuh"

namespace fovea::cuda {

// Starts d = own operand by query operand, summed over the width: from registers or from its tile.
template <class T, class Shape>
__device__ __forceinline__ void own_by_queries(float (&d)[8][4], const unsigned (&held)[4][4],
                                               unsigned own, unsigned queries) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const unsigned at = static_cast<unsigned>(i) * 32;
    const unsigned long long b = operand_at(queries + at);
    if constexpr (Shape::kHoldOperands) {
      if (i == 0)
        wgmma_first<T, Walk::along_k>(d, held[i], b);
      else
        wgmma<T, Walk::along_k>(d, held[i], b);
    } else {
      if (i == 0)
        wgmma_first<T, Walk::along_k, Walk::along_k>(d, operand_at(own + at), b);
      else
        wgmma<T, Walk::along_k, Walk::along_k>(d, operand_at(own + at), b);
    }
  }
  wgmma_commit();
}

// Starts d += own scores by query operand, summed over the queries.
template <class T>
__device__ __forceinline__ void scores_by_queries(float (&d)[8][4], const unsigned (&scores)[4][4],
                                                  unsigned queries) {
  wgmma_fence();
#pragma unroll
  for (int i = 0; i < 4; ++i)
    wgmma<T, Walk::across_k>(d, scores[i], operand_at(queries + static_cast<unsigned>(i) * 2048));
  wgmma_commit();
}

// The owner of the first or second `half` of the keys.
template <class T, class Shape>
__device__ __forceinline__ void one_pass_keys(const FlashCall& call, const OnePass& pass,
                                              const OnePassMemory<Shape>& memory, int half) {
  using Tile = typename Shape::Tile;
  constexpr unsigned kTileBytes = Shape::kTileBytes;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = uniform_warp() % 4;
  const int lane_column = lane % 4 * 2;
  const unsigned by_rows =
      static_cast<unsigned>(warp * 16 * Tile::kRowBytes) + Tile::lane_by_rows(lane);
  const unsigned own = static_cast<unsigned>(half) * kTileBytes;
  const float scale = call.scale * kLog2E;
  Ring<Shape::kStages> stage, previous;
  Ring<2> buffer;

  int key_step = 0;
  for (int head = static_cast<int>(blockIdx.x); head < pass.heads;
       head += static_cast<int>(gridDim.x)) {
    const int b = head / call.heads, h = head % call.heads;
    for (int key_tile = 0; key_tile < pass.key_tiles; ++key_tile, ++key_step) {
      const int first_key = key_tile * kPassKeys + 64 * half;
      const unsigned keys = memory.keys(key_step) + own, values = keys + 2 * kTileBytes;
      int tile = pass.first_seeing(call, key_tile * kPassKeys);
      const int first_tile =
          first_key < call.keys ? pass.first_seeing(call, first_key) : pass.query_tiles;
      wait_turn(memory.loaded(stage.place), stage.round);
      unsigned k[4][4], v[4][4];
      if constexpr (Shape::kHoldOperands) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          ldmatrix(k[i], Tile::block(keys + by_rows, 0, i));
          ldmatrix(v[i], Tile::block(values + by_rows, 0, i));
        }
      }
      // Tiles that see only the other owner's keys.
      for (; tile < first_tile; ++tile, stage.advance(), buffer.advance()) {
        wait_turn(memory.loaded(stage.place), stage.round);
        arrive_warp(memory.used(stage.place));
        if (buffer.round > 0) wait_turn(memory.scores_used(buffer.place), buffer.round - 1);
        arrive_warp(memory.scored(buffer.place));
      }

      float dk[1][8][4] = {}, dv[1][8][4] = {};
      if (tile < pass.query_tiles) {
        unsigned p[4][4], ds[4][4];
#pragma unroll 1
        for (; tile < pass.query_tiles; ++tile, stage.advance(), buffer.advance()) {
          const unsigned queries = memory.queries(stage.place), douts = queries + kTileBytes;
          const unsigned rows = memory.rows(stage.place) + static_cast<unsigned>(lane_column) * 4;
          wait_turn(memory.loaded(stage.place), stage.round);
          if constexpr (Shape::kHoldOperands) wgmma_wait<1>();  // the dV before: its P gives room
          float s[8][4], dp[8][4];
          wgmma_fence();
          own_by_queries<T, Shape>(s, k, keys, queries);
          own_by_queries<T, Shape>(dp, v, values, douts);
          wgmma_wait<1>();  // the scores, and the dK before them
          keep(s);
          if (tile > first_tile) arrive_warp(memory.used(previous.place));
          previous = stage;

          const int first = tile * kPassQueries;
          if (first_key + 64 > call.keys || (call.causal && first_key + 63 > first + call.offset)) {
            const int key = first_key + warp * 16 + lane / 4;
#pragma unroll
            for (int n = 0; n < 8; ++n) {
#pragma unroll
              for (int e = 0; e < 4; ++e) {
                const int at = key + e / 2 * 8, query = first + 8 * n + lane_column + e % 2;
                if (at >= call.keys || (call.causal && at > query + call.offset))
                  s[n][e] = __int_as_float(0xff800000);
              }
            }
          }
#pragma unroll
          for (int n = 0; n < 8; ++n) {
            const float2 lse = *shared_pointer<float2>(rows + static_cast<unsigned>(n) * 32);
#pragma unroll
            for (int e = 0; e < 4; ++e)
              s[n][e] = exp2_fast(fmaf(s[n][e], scale, e % 2 == 0 ? lse.x : lse.y));
          }
          as_operands<T>(p, s);
          keep(p);
          scores_by_queries<T>(dv[0], p, douts);
          wgmma_wait<1>();  // dP
          keep(dp);
#pragma unroll
          for (int n = 0; n < 8; ++n) {
            const float2 delta = *shared_pointer<float2>(rows + Shape::kRowBytes / 2 +
                                                         static_cast<unsigned>(n) * 32);
#pragma unroll
            for (int e = 0; e < 4; ++e)
              dp[n][e] = (dp[n][e] + (e % 2 == 0 ? delta.x : delta.y)) * s[n][e];
          }
          as_operands<T>(ds, dp);
          keep(ds);
          scores_by_queries<T>(dk[0], ds, queries);
          if (buffer.round > 0) wait_turn(memory.scores_used(buffer.place), buffer.round - 1);
          const unsigned scores = memory.scores(buffer.place) + own + by_rows;
#pragma unroll
          for (int i = 0; i < 4; ++i)
            stmatrix(Tile::block(scores, 0, i), ds[i]);
          wgmma_written();
          arrive_warp(memory.scored(buffer.place));
        }
        wgmma_wait<0>();
        keep(dk[0]);
        keep(dv[0]);
        arrive_warp(memory.used(previous.place));
      }

      // The values' room takes the results: each warp's in the rows that only it has read.
      if constexpr (!Shape::kHoldOperands) sync_warpgroup(2 + half);
#pragma unroll
      for (int n = 0; n < 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e)
          dk[0][n][e] *= call.scale;
      }
      store_rows<T, 64, 1>(values, warp * 16, call.dv.at<T>(b, h), call.dv.row,
                           first_key + warp * 16, call.keys, call.value_width, dv);
      __syncwarp();
      store_rows<T, 64, 1>(values, warp * 16, call.dk.at<T>(b, h), call.dk.row,
                           first_key + warp * 16, call.keys, call.width, dk);
      arrive_warp(memory.keys_used(key_step));
    }
  }
}

}  // namespace fovea::cuda
