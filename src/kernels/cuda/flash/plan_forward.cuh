#pragma once
// The forward kernel of a plan on sm_90a: the loop of forward.cuh with products of a warpgroup
// (plan_tile.cuh). A block owns 64 queries. While it takes exponentials the tensor cores work for
// the other blocks of the multiprocessor. Pieces of long lines leave sums, references and masses in
// f32, and join_pieces_kernel joins them in order.
// Traffic: q, o once; k, v once a query tile that sees them, from L2 in all but the first use;
// 17 KiB a piece, twice.

#include "kernels/cuda/flash/plan_tile.cuh"

namespace fovea::cuda {

constexpr int kPlanForwardBlocks = 3;
using PlanForwardMemory = PlanMemory<1, 3>;
// Of a piece: [64, 64] sums of values, [64] references, [64] masses.
constexpr int kReferencesAt = 64 * 64, kMassesAt = kReferencesAt + 64,
              kForwardFloats = kMassesAt + 64;

template <class T>
__device__ __forceinline__ void plan_attend(const FlashCall& call, const PlanLine& line) {
  const PlanForwardMemory memory;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = uniform_warp();
  const int b = line.b, h = line.head, kv = h / call.group, first = line.tile * kPlanTile;
  const int row = warp * 16 + lane / 4;
  const bool marked = call.marked();
  const std::int32_t* query_order = call.plan.query_order(b, h);
  const std::int32_t* key_order = call.plan.key_order(b, kv);
  const int key_end = call.plan.key_end(b, h);

  load_tile<T, 64, kPlanTile, true>(memory.own, call.q.at<const T>(b, h), call.q.row, first,
                                    call.queries, call.width, call.query_tokens, b, query_order,
                                    call.plan.query_end(b, h));
  TileCursor<true, 1> next(call.plan, call.plan.of_queries, b, line.tile, h, 1, line.low,
                           line.high);
  const auto fetch = [&](const NextTile& at, int stage) {
    const int from = at.tile * kPlanTile;
    load_two<T>(memory.stage(stage), call.k, call.width, call.v, call.value_width, b, kv, from,
                call.keys, call.key_tokens, key_order, key_end);
    if (marked)
      load_marks<kPlanTile>(memory.marks(stage), from, call.keys, call.key_tokens, b, key_order);
    if (is_seen_in_part(at.kind))
      make_words(memory.words(stage), call.plan.sight, b, h, line.tile, at.tile);
  };

  if (marked)
    load_marks<kPlanTile>(memory.own_marks(), first, call.queries, call.query_tokens, b,
                          query_order);

  float o[1][8][4] = {};
  unsigned p[4][4];
  RunningSoftmax<1> softmax;
  const float scale = call.scale * kLog2E;
  // The first turns only fetch: one place fetches, which is long code.
  constexpr int kStages = PlanForwardMemory::kStages, kAhead = PlanForwardMemory::kAhead;
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
    const NextTile last(next, call.keys);
    if (last.kind != 0) {
      const int behind = stage == 0 ? kStages - 1 : stage - 1;
      fetch(last, turn < kAhead ? turn : behind);
      next.advance();
    }
    commit_copies();
    kinds.push(last.kind);
    if (turn < kAhead) continue;

    const unsigned keys = memory.stage(stage), values = keys + kPlanTileBytes;
    float s[1][8][4];
    wgmma_fence();
    own_by_rows<T>(s[0], memory.own, keys);
    wgmma_wait<0>();
    keep(s[0]);
    keep(o[0]);
    if (is_seen_in_part(here)) hide_by_shared_words<false>(s[0], memory.words(stage));
    if (here % 256 < kPlanTile || (marked && (here >> 8 != kSeenWhole || !call.plan.counts_tokens)))
      hide_by_marks(s[0], here % 256, marked, memory.marks(stage), memory.own_marks());

    float shrink[1][2];
    if (softmax.advance(s, scale, shrink)) shrink_rows(o, shrink);
#pragma unroll
    for (int n = 0; n < 8; ++n)
      softmax.weigh(s[0][n], 0, scale);
    as_operands<T>(p, s[0]);
    keep(p);
    keep(o[0]);
    scores_by_tile<T>(o[0], p, values);
    if (++stage == kStages) stage = 0;
  }
  wait_copies<0>();
  wgmma_wait<0>();
  keep(o[0]);
  __syncthreads();  // the queries' room takes the results

#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float sum = quad_sum(softmax.sum[0][r]);
    if (line.sums != nullptr) {
      float* to = line.sums + (row + 8 * r) * 64 + lane % 4 * 2;
#pragma unroll
      for (int n = 0; n < 8; ++n)
        *reinterpret_cast<float2*>(to + 8 * n) = make_float2(o[0][n][2 * r], o[0][n][2 * r + 1]);
      if (lane % 4 == 0) {
        line.sums[kReferencesAt + row + 8 * r] = softmax.reference[0][r];
        line.sums[kMassesAt + row + 8 * r] = sum;
      }
      continue;
    }
    const int slot = first + row + 8 * r;
    const int token = slot < call.queries ? token_at(query_order, slot) : slot;
    const bool any = sum != 0 && slot < call.queries && call.query_tokens.is_valid(b, token);
    const float inverse = 1 / sum;
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      o[0][n][2 * r] = any ? o[0][n][2 * r] * inverse : 0;
      o[0][n][2 * r + 1] = any ? o[0][n][2 * r + 1] * inverse : 0;
    }
    if (lane % 4 == 0 && slot < call.queries) {
      call.lse[(static_cast<std::int64_t>(b) * call.heads + h) * call.queries + token] =
          any ? (softmax.reference[0][r] + log2f(sum)) * kLn2 : __int_as_float(0xff800000);
    }
  }
  if (line.sums == nullptr)
    store_rows<T, 64, 1, true>(memory.own, warp * 16, call.o.at<T>(b, h), call.o.row,
                               first + warp * 16, call.queries, call.value_width, o, query_order);
}

// The first tables.blocks blocks share the pieces, the others have a line each.
template <class T>
__global__ __launch_bounds__(kFlashThreads, kPlanForwardBlocks) void plan_forward_kernel(
    const __grid_constant__ FlashCall call, const TileOrder order,
    const __grid_constant__ PieceTables tables) {
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  const bool shares = static_cast<int>(blockIdx.x) < tables.blocks;
#pragma unroll 1
  for (int at = static_cast<int>(blockIdx.x);; at += tables.blocks) {
    PlanLine line;
    if (shares) {
      if (at >= tables.queries.count()) return;
      line = PlanLine(tables.queries, at, order.tiles, call.heads);
    } else {
      const TileOrder::Place place = order.at(at - tables.blocks);
      line.b = place.head / call.heads, line.head = place.head % call.heads;
      line.tile = order.tiles - 1 - place.tile;  // under causality the last queries see most
      if (tables.queries.capacity > 0 &&
          LineLength(call.plan, call.plan.of_queries, line.b, line.head, 1, line.tile,
                     tables.queries.header[0])
              .is_cut())
        return;
    }
    plan_attend<T>(call, line);
    if (!shares) return;
    __syncthreads();
  }
#endif
}

// Joins the pieces of each cut line, a warp a row. The blocks of a line's pieces share its rows.
template <class T>
__global__ __launch_bounds__(kFlashThreads) void join_pieces_kernel(
    const __grid_constant__ FlashCall call, const __grid_constant__ PieceTables tables) {
  constexpr int kWarps = kFlashThreads / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int pieces = tables.queries.count(), tiles = call.plan.of_queries.count;
  const std::int64_t stride = kForwardFloats;
  const float none = __int_as_float(0xff800000);
  for (int at = static_cast<int>(blockIdx.x); at < pieces; at += static_cast<int>(gridDim.x)) {
    const Piece piece = tables.queries.pieces[at];
    const int one = piece.line / tiles, b = one / call.heads, h = one % call.heads;
    const float* sums = tables.queries.sums + piece.first * stride;
    for (int row = (at - piece.first) * kWarps + warp; row < 64; row += piece.count * kWarps) {
      const int slot = piece.line % tiles * kPlanTile + row;
      if (slot >= call.queries) break;
      float top = none;
#pragma unroll 8
      for (int i = 0; i < piece.count; ++i)
        top = fmaxf(top, sums[i * stride + kReferencesAt + row]);
      float sum = 0;
      float2 value = {};
#pragma unroll 4
      for (int i = 0; i < piece.count; ++i) {
        const float reference = sums[i * stride + kReferencesAt + row];
        const float weight = reference == none ? 0 : exp2_fast(reference - top);
        const float2 x = *reinterpret_cast<const float2*>(sums + i * stride + row * 64 + lane * 2);
        sum = fmaf(weight, sums[i * stride + kMassesAt + row], sum);
        value.x = fmaf(weight, x.x, value.x);
        value.y = fmaf(weight, x.y, value.y);
      }
      const int token = token_at(call.plan.query_order(b, h), slot);
      const bool any = sum != 0 && call.query_tokens.is_valid(b, token);
      T* to = call.o.at<T>(b, h) + token * call.o.row + lane * 2;
      if (lane * 2 < call.value_width) {
        to[0] = from_float<T>(any ? value.x / sum : 0);
        to[1] = from_float<T>(any ? value.y / sum : 0);
      }
      if (lane == 0)
        call.lse[static_cast<std::int64_t>(one) * call.queries + token] =
            any ? (top + log2f(sum)) * kLn2 : none;
    }
  }
}

template <class T>
void launch_plan_forward(StreamRef stream, const FlashCall& call, const PieceTables& tables) {
  TileOrder order;
  order.heads = call.batch * call.heads;
  order.tiles = (call.queries + kPlanTile - 1) / kPlanTile;
  order.section = section_heads(std::int64_t{call.keys} * 2 * (64 + 64) / call.group, order.heads);
  find_pieces(stream, call, tables);
  launch_shared(stream, "flash_forward", plan_forward_kernel<T>,
                static_cast<unsigned>(tables.blocks + order.heads * order.tiles), kFlashThreads,
                PlanForwardMemory::kBytes, call, order, tables);
  if (tables.blocks == 0) return;
  join_pieces_kernel<T>
      <<<static_cast<unsigned>(2 * tables.blocks), kFlashThreads, 0, stream_of(stream)>>>(call,
                                                                                          tables);
  check_launch("flash_forward");
}

}  // namespace fovea::cuda
