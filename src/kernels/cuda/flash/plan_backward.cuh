#pragma once
// The backward kernel of a plan on sm_90a: the two passes of backward.cuh with products of a
// warpgroup (plan_tile.cuh). A block owns 64 keys (it makes dK and dV) or 64 queries (it makes dQ):
//   P = exp(A B^T - lse), dS = P (A' B'^T - delta), then dA += dS B, dA' += P B'
// Blocks share a multiprocessor: while one takes exponentials the tensor cores work for the others.
// Pieces of long lines leave their sums in f32, and add_pieces_kernel adds them in order.
// Traffic: every operand once a tile of the other side that sees it, from L2 in all but the first
// use; dq, dk, dv once; 32 KiB a piece of keys, 16 KiB a piece of queries, twice.

#include "kernels/cuda/flash/plan_tile.cuh"

namespace fovea::cuda {

using PlanBackwardMemory = PlanMemory<2, 3>;
constexpr int kKeyFloats = 2 * 64 * 64, kQueryFloats = 64 * 64;  // of a piece

// Rows of accumulators, f32, to where the piece's sums of one result are.
__device__ __forceinline__ void store_sums(float* to, const float (&rows)[8][4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  to += (uniform_warp() * 16 + lane / 4) * 64 + lane % 4 * 2;
#pragma unroll
  for (int n = 0; n < 8; ++n) {
    *reinterpret_cast<float2*>(to + 8 * n) = make_float2(rows[n][0], rows[n][1]);
    *reinterpret_cast<float2*>(to + 8 * 64 + 8 * n) = make_float2(rows[n][2], rows[n][3]);
  }
}

template <class T, bool kOwnsKeys>
__device__ __forceinline__ void plan_gradient(const FlashCall& call, const PlanLine& line) {
  const PlanBackwardMemory memory;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = uniform_warp();
  const int b = line.b, first = line.tile * kPlanTile, row = warp * 16 + lane / 4;
  const int kv = kOwnsKeys ? line.head : line.head / call.group, lane_column = lane % 4 * 2;
  const int own_count = kOwnsKeys ? call.keys : call.queries;
  const int other_count = kOwnsKeys ? call.queries : call.keys;
  const Tokens& own_tokens = kOwnsKeys ? call.key_tokens : call.query_tokens;
  const Tokens& other_tokens = kOwnsKeys ? call.query_tokens : call.key_tokens;
  const bool marked = call.marked();
  const std::int32_t* own_order =
      kOwnsKeys ? call.plan.key_order(b, line.head) : call.plan.query_order(b, line.head);
  const std::int64_t plane =
      static_cast<std::int64_t>(call.batch) * call.heads * call.padded_queries;
  const float scale = call.scale * kLog2E;

  load_two<T>(memory.own, kOwnsKeys ? call.k : call.q, call.width, kOwnsKeys ? call.v : call.dout,
              call.value_width, b, line.head, first, own_count, own_tokens, own_order,
              kOwnsKeys ? call.plan.key_end(b, line.head * call.group, call.group)
                        : call.plan.query_end(b, line.head));
  TileCursor<true, 1> next(call.plan, kOwnsKeys ? call.plan.of_keys : call.plan.of_queries, b,
                           line.tile, line.first_head, line.heads, line.low, line.high);
  const auto fetch = [&](const NextTile& at, int stage) {
    const int head = kOwnsKeys ? at.head : kv, from = at.tile * kPlanTile;
    const std::int32_t* order =
        kOwnsKeys ? call.plan.query_order(b, head) : call.plan.key_order(b, head);
    load_two<T>(memory.stage(stage), kOwnsKeys ? call.q : call.k, call.width,
                kOwnsKeys ? call.dout : call.v, call.value_width, b, head, from, other_count,
                other_tokens, order,
                kOwnsKeys ? call.plan.query_end(b, head) : call.plan.key_end(b, line.head));
    if constexpr (kOwnsKeys) {
      constexpr int kPieces16 = kPlanTile / 4;  // 16 bytes each, of one plane
      if (thread < 2 * kPieces16) {
        const float* rows = call.rows + (thread < kPieces16 ? 0 : plane) +
                            static_cast<std::int64_t>(b * call.heads + head) * call.padded_queries +
                            from;
        copy_async(memory.rows(stage) + static_cast<unsigned>(thread) * 16,
                   rows + thread % kPieces16 * 4, true);
      }
    }
    if (marked)
      load_marks<kPlanTile>(memory.marks(stage), from, other_count, other_tokens, b, order);
    if (is_seen_in_part(at.kind))
      make_words(memory.words(stage), call.plan.sight, b, kOwnsKeys ? head : line.head,
                 kOwnsKeys ? at.tile : line.tile, kOwnsKeys ? line.tile : at.tile);
  };

  if (marked) load_marks<kPlanTile>(memory.own_marks(), first, own_count, own_tokens, b, own_order);
  float own_lse[2] = {}, own_delta[2] = {};
  if constexpr (!kOwnsKeys) {
    const float* rows = call.rows + first + row +
                        static_cast<std::int64_t>(b * call.heads + line.head) * call.padded_queries;
    own_lse[0] = rows[0], own_lse[1] = rows[8];
    own_delta[0] = rows[plane], own_delta[1] = rows[plane + 8];
  }

  float da[1][8][4] = {}, da2[1][8][4] = {};
  unsigned p[4][4], ds[4][4];
  // The first turns only fetch: one place fetches, which is long code.
  constexpr int kStages = PlanBackwardMemory::kStages, kAhead = PlanBackwardMemory::kAhead;
  TileKinds<kAhead> kinds;
#pragma unroll 1
  for (int turn = 0, stage = 0;; ++turn) {
    const int here = kinds.kind[0];
    if (turn >= kAhead) {
      if (here == 0) break;
      wait_copies<kAhead - 1>();
      wgmma_wait<0>();
      wgmma_written();
      __syncthreads();
    }
    // Everyone has this tile, and nobody needs the one before it any more.
    const NextTile last(next, other_count);
    if (last.kind != 0) {
      const int behind = stage == 0 ? kStages - 1 : stage - 1;
      fetch(last, turn < kAhead ? turn : behind);
      next.advance();
    }
    commit_copies();
    kinds.push(last.kind);
    if (turn < kAhead) continue;

    const unsigned b_tile = memory.stage(stage), b2_tile = b_tile + kPlanTileBytes;
    float s[8][4], dp[8][4];
    wgmma_fence();
    own_by_rows<T>(s, memory.own, b_tile);
    own_by_rows<T>(dp, memory.own + kPlanTileBytes, b2_tile);
    wgmma_wait<1>();  // the scores, and what was added for the tile before
    keep(s);

    if (is_seen_in_part(here)) hide_by_shared_words<kOwnsKeys>(s, memory.words(stage));
    if ((!kOwnsKeys && here % 256 < kPlanTile) ||
        (marked && (here >> 8 != kSeenWhole || !call.plan.counts_tokens)))
      hide_by_marks(s, kOwnsKeys ? kPlanTile : here % 256, marked, memory.marks(stage),
                    memory.own_marks());
    const unsigned rows = memory.rows(stage) + static_cast<unsigned>(lane_column) * 4;
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      float2 lse = {};
      if constexpr (kOwnsKeys) lse = *shared_pointer<float2>(rows + static_cast<unsigned>(n) * 32);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float base = !kOwnsKeys ? own_lse[e / 2] : e % 2 == 0 ? lse.x : lse.y;
        s[n][e] = exp2_fast(fmaf(s[n][e], scale, base));
      }
    }
    if constexpr (kOwnsKeys) {
      as_operands<T>(p, s);
      keep(p);
      scores_by_tile<T>(da2[0], p, b2_tile);
    }
    wgmma_wait<kOwnsKeys ? 1 : 0>();
    keep(dp);
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      float2 delta = {};
      if constexpr (kOwnsKeys)
        delta = *shared_pointer<float2>(rows + kPlanTile * 4 + static_cast<unsigned>(n) * 32);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float base = !kOwnsKeys ? own_delta[e / 2] : e % 2 == 0 ? delta.x : delta.y;
        dp[n][e] = (dp[n][e] + base) * s[n][e];
      }
    }
    as_operands<T>(ds, dp);
    keep(ds);
    scores_by_tile<T>(da[0], ds, b_tile);

    if (++stage == kStages) stage = 0;
  }
  wait_copies<0>();
  wgmma_wait<0>();
  keep(da[0]);
  keep(da2[0]);
  __syncthreads();  // the own operands' room takes the results

#pragma unroll
  for (int n = 0; n < 8; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e)
      da[0][n][e] *= call.scale;
  }
  if (line.sums != nullptr) {
    store_sums(line.sums, da[0]);
    if constexpr (kOwnsKeys) store_sums(line.sums + 64 * 64, da2[0]);
    return;
  }
  const HeadRows& one = kOwnsKeys ? call.dk : call.dq;
  if (one.data != nullptr)
    store_rows<T, 64, 1, true>(memory.own, warp * 16, one.at<T>(b, line.head), one.row,
                               first + warp * 16, own_count, call.width, da, own_order);
  if constexpr (kOwnsKeys) {
    if (call.dv.data != nullptr)
      store_rows<T, 64, 1, true>(memory.own + kPlanTileBytes, warp * 16,
                                 call.dv.at<T>(b, line.head), call.dv.row, first + warp * 16,
                                 own_count, call.value_width, da2, own_order);
  }
}

// The first blocks share the pieces of the side, the others have a line each. Owners of queries
// hold less, so that more of them share a multiprocessor: each side has a launch of its own.
template <class T, bool kOwnsKeys>
__global__ __launch_bounds__(kFlashThreads, kOwnsKeys ? 2 : 3) void plan_backward_kernel(
    const __grid_constant__ FlashCall call, const TileOrder order,
    const __grid_constant__ PieceTables tables) {
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  const PieceTable& table = kOwnsKeys ? tables.keys : tables.queries;
  const int heads = kOwnsKeys ? call.kv_heads : call.heads;
  const int sharing = table.capacity > 0 ? tables.blocks : 0;
  const bool shares = static_cast<int>(blockIdx.x) < sharing;
#pragma unroll 1
  for (int at = static_cast<int>(blockIdx.x);; at += sharing) {
    PlanLine line;
    if (shares) {
      if (at >= table.count()) return;
      line = PlanLine(table, at, order.tiles, heads);
    } else {
      const TileOrder::Place place = order.at(at - sharing);
      line.b = place.head / heads, line.head = place.head % heads;
      line.tile = kOwnsKeys ? place.tile : order.tiles - 1 - place.tile;
      line.heads = kOwnsKeys ? call.group : 1, line.first_head = line.head * line.heads;
      if (table.capacity > 0 &&
          LineLength(call.plan, kOwnsKeys ? call.plan.of_keys : call.plan.of_queries, line.b,
                     line.first_head, line.heads, line.tile, table.header[0])
              .is_cut())
        return;
    }
    plan_gradient<T, kOwnsKeys>(call, line);
    if (!shares) return;
    __syncthreads();
  }
#endif
}

// Adds the pieces of each cut line. The blocks of a line's pieces share its rows.
template <class T>
__global__ __launch_bounds__(kFlashThreads) void add_pieces_kernel(
    const __grid_constant__ FlashCall call, const __grid_constant__ PieceTables tables) {
  const int thread = static_cast<int>(threadIdx.x), column = thread % 64;
  const int key_pieces = tables.keys.count(), pieces = key_pieces + tables.queries.count();
  for (int at = static_cast<int>(blockIdx.x); at < pieces; at += static_cast<int>(gridDim.x)) {
    const bool of_keys = at < key_pieces, is_second = thread >= 64;
    if (!of_keys && is_second) continue;
    const PieceTable& table = of_keys ? tables.keys : tables.queries;
    const int index = of_keys ? at : at - key_pieces;
    const Piece piece = table.pieces[index];
    const int tiles = of_keys ? call.plan.of_keys.count : call.plan.of_queries.count;
    const int heads = of_keys ? call.kv_heads : call.heads;
    const int one = piece.line / tiles, b = one / heads, h = one % heads;
    const HeadRows& to = is_second ? call.dv : of_keys ? call.dk : call.dq;
    if (to.data == nullptr || column >= (is_second ? call.value_width : call.width)) continue;
    const std::int32_t* order = of_keys ? call.plan.key_order(b, h) : call.plan.query_order(b, h);
    const int count = of_keys ? call.keys : call.queries;
    for (int row = index - piece.first; row < 64; row += piece.count) {
      const int slot = piece.line % tiles * kPlanTile + row;
      if (slot >= count) break;
      const float* from = table.sums + static_cast<std::int64_t>(piece.first) * table.floats +
                          (is_second ? 64 * 64 : 0) + row * 64 + column;
      float sum = 0;
#pragma unroll 8
      for (int i = 0; i < piece.count; ++i)
        sum += from[static_cast<std::int64_t>(i) * table.floats];
      to.at<T>(b, h)[token_at(order, slot) * to.row + column] = from_float<T>(sum);
    }
  }
}

template <class T, bool kOwnsKeys>
void launch_plan_side(StreamRef stream, const FlashCall& call, const TileOrder& order,
                      const PieceTables& tables) {
  const PieceTable& table = kOwnsKeys ? tables.keys : tables.queries;
  const int blocks = (table.capacity > 0 ? tables.blocks : 0) + order.heads * order.tiles;
  if (order.heads * order.tiles == 0) return;
  launch_shared(stream, "flash_backward", plan_backward_kernel<T, kOwnsKeys>,
                static_cast<unsigned>(blocks), kFlashThreads, PlanBackwardMemory::kBytes, call,
                order, tables);
}

template <class T>
void launch_plan_backward(StreamRef stream, const FlashCall& call, const PieceTables& tables) {
  TileOrder keys, queries;  // no tiles: gradient not wanted
  const std::int64_t tokens = std::int64_t{call.keys} + std::int64_t{call.queries} * call.group;
  keys.heads = call.batch * call.kv_heads, queries.heads = call.batch * call.heads;
  keys.section = section_heads(tokens * 2 * (64 + 64), keys.heads);
  queries.section = keys.section * call.group;
  if (call.dk.data != nullptr || call.dv.data != nullptr) keys.tiles = call.plan.of_keys.count;
  if (call.dq.data != nullptr) queries.tiles = call.plan.of_queries.count;
  find_pieces(stream, call, tables);
  launch_plan_side<T, true>(stream, call, keys, tables);
  launch_plan_side<T, false>(stream, call, queries, tables);
  if (tables.blocks == 0) return;
  add_pieces_kernel<T>
      <<<static_cast<unsigned>(4 * tables.blocks), kFlashThreads, 0, stream_of(stream)>>>(call,
                                                                                          tables);
  check_launch("flash_backward");
}

}  // namespace fovea::cuda
