#pragma once
// The tensor-core backward kernel: two passes over pairs of tiles, both in one launch.
//
// A block of four warps owns 64 kM tokens: keys (it makes dK and dV) or queries (it makes dQ). Each
// warp holds two operands of its 16 kM own tokens in registers for good, k and v or q and dout, and
// the other side streams through shared memory, 64 tokens at a time and 16 at once:
//   P = exp(A B^T - lse), dS = P (A' B'^T - delta), then dA += dS B, dA' += P B'
// with A, A', B, B' = k, v, q, dout for keys (scores stand transposed) and q, dout, k, v for
// queries (no dA'). Seven products where one pass would need five, but nothing crosses a warp: no
// atomics, no accumulator in global memory, no order to keep between blocks, and every score is an
// operand in the registers where it was made. Every sum has one order: the result is a pure
// function of the shape and the values. The products start from -lse / scale and -delta instead of
// 0. Traffic: every operand once a tile of the other side that sees it, from L2 in all but the
// first use; dq, dk, dv once.

#include "kernels/cuda/flash/tokens.cuh"

namespace fovea::cuda {

constexpr int kStream = 64, kChunk = 16;  // other tokens a shared tile, and at once

// kHoldValues: whether warps that own keys hold their values in registers, or read them from shared
// memory for every chunk.
template <int kWidth_, int kM_, int kBlocks_, bool kHoldValues_>
struct BackwardShape {
  static constexpr int kWidth = kWidth_, kM = kM_, kBlocks = kBlocks_;
  static constexpr bool kHoldValues = kHoldValues_;
  static constexpr int kOwn = 64 * kM;
  static constexpr unsigned kTileBytes = kStream * kWidth * 2;
  static constexpr unsigned kRowBytes = 2 * kStream * sizeof(float);  // lse and delta
  static constexpr unsigned kMarkBytes = kStream * sizeof(int2);
  static constexpr unsigned kValueBytes = kHoldValues ? 0 : kM * kTileBytes;
  // b, b' | b, b' | own values | lse, delta | lse, delta | marks | marks | narrowed(); and room for
  // aligning.
  static constexpr unsigned bytes(bool masked) {
    return 4 * kTileBytes + kValueBytes + 2 * kRowBytes + (masked ? 2 * kMarkBytes + 16 : 0) + 1024;
  }
};

// Which blocks a launch has: in each section of key/value heads, first those that own keys, then
// those that own queries.
struct BackwardOrder {
  TileOrder keys, queries;  // no tiles: gradient not wanted
  int blocks_of_section = 0;
};

template <class T, class Shape, bool kMasked, bool kOwnsKeys>
__device__ __forceinline__ void gradient_tile(const FlashCall& call, int b, int own_head,
                                              int first) {
  constexpr int kWidth = Shape::kWidth, kM = Shape::kM, kSteps = kWidth / 16;
  using Tile = Swizzled<kWidth>;
  const unsigned tiles =
      (shared_base() + Tile::kAlignment - 1) / Tile::kAlignment * Tile::kAlignment;
  const unsigned row_tiles = tiles + 4 * Shape::kTileBytes + Shape::kValueBytes;
  const unsigned mark_tiles = row_tiles + 2 * Shape::kRowBytes;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = uniform_warp();
  const int warp_first = first + warp * 16 * kM;
  const int lane_row = warp_first + lane / 4, lane_column = lane % 4 * 2;
  const int kv = kOwnsKeys ? own_head : own_head / call.group;
  const int own_count = kOwnsKeys ? call.keys : call.queries;
  const int other_count = kOwnsKeys ? call.queries : call.keys;
  const Tokens& own_tokens = kOwnsKeys ? call.key_tokens : call.query_tokens;
  const Tokens& other_tokens = kOwnsKeys ? call.query_tokens : call.key_tokens;

  // Which of the others any own token sees or is seen by.
  TokenRange range = {0, other_count};
  if (call.causal) {
    if (kOwnsKeys)
      range.begin = max(0, first - call.offset);
    else
      range.end = min(range.end, min(first + Shape::kOwn, own_count) + call.offset);
  }
  int segment[kM][2] = {};
  bool exists[kM][2] = {};
  if constexpr (kMasked) {
    range = narrowed(range, mark_tiles + 2 * Shape::kMarkBytes, own_tokens, first,
                     min(Shape::kOwn, own_count - first), other_tokens, b);
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int2 mark = mark_of(own_tokens, b, lane_row + 16 * m + 8 * r, own_count);
        segment[m][r] = mark.x, exists[m][r] = mark.y != 0;
      }
    }
  }
  const int begin = range.begin / kStream;
  const int tiles_a_head = max(0, (range.end + kStream - 1) / kStream - begin);
  const int steps = kOwnsKeys ? tiles_a_head * call.group : tiles_a_head;

  // The own operands, through the stream's room.
  constexpr bool kHold = Shape::kHoldValues || !kOwnsKeys;
  const unsigned second = tiles + static_cast<unsigned>(kHold ? kM : 4) * Shape::kTileBytes;
  const unsigned lane_own =
      static_cast<unsigned>(warp * 16 * kM * Tile::kRowBytes) + Tile::lane_by_rows(lane);
  unsigned a[kM][kSteps][4], a2[kM][kHold ? kSteps : 1][4];
  {
    const HeadRows& one = kOwnsKeys ? call.k : call.q;
    const HeadRows& two = kOwnsKeys ? call.v : call.dout;
    load_tile<T, kWidth, Shape::kOwn, kMasked>(tiles, one.at<const T>(b, own_head), one.row, first,
                                               own_count, call.width, own_tokens, b);
    load_tile<T, kWidth, Shape::kOwn, kMasked>(second, two.at<const T>(b, own_head), two.row, first,
                                               own_count, call.value_width, own_tokens, b);
    commit_copies();
    wait_copies<0>();
    __syncthreads();
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        ldmatrix(a[m][step], Tile::block(tiles + lane_own, m, step));
        if constexpr (kHold) ldmatrix(a2[m][step], Tile::block(second + lane_own, m, step));
      }
    }
    __syncthreads();
  }
  // -lse / scale and -delta of the own queries.
  const std::int64_t plane =
      static_cast<std::int64_t>(call.batch) * call.heads * call.padded_queries;
  float lse[kM][2] = {}, delta[kM][2] = {};
  if constexpr (!kOwnsKeys) {
    const float* rows =
        call.rows + static_cast<std::int64_t>(b * call.heads + own_head) * call.padded_queries;
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        lse[m][r] = rows[lane_row + 16 * m + 8 * r];
        delta[m][r] = rows[plane + lane_row + 16 * m + 8 * r];
      }
    }
  }

  // What comes next; query heads of the group one after another.
  int next_head = kOwnsKeys ? kv * call.group : kv, next_tile = begin;
  const auto fetch = [&](int stage) {
    const HeadRows& one = kOwnsKeys ? call.q : call.k;
    const HeadRows& two = kOwnsKeys ? call.dout : call.v;
    const unsigned to = tiles + static_cast<unsigned>(stage) * 2 * Shape::kTileBytes;
    load_tile<T, kWidth, kStream, kMasked>(to, one.at<const T>(b, next_head), one.row,
                                           next_tile * kStream, other_count, call.width,
                                           other_tokens, b);
    load_tile<T, kWidth, kStream, kMasked>(to + Shape::kTileBytes, two.at<const T>(b, next_head),
                                           two.row, next_tile * kStream, other_count,
                                           call.value_width, other_tokens, b);
    if constexpr (kOwnsKeys) {
      constexpr int kPieces = kStream / 4;  // 16 bytes each, of one plane
      const int piece = static_cast<int>(threadIdx.x);
      if (piece < 2 * kPieces) {
        const float* rows =
            call.rows + (piece < kPieces ? 0 : plane) +
            static_cast<std::int64_t>(b * call.heads + next_head) * call.padded_queries +
            next_tile * kStream;
        copy_async(row_tiles + static_cast<unsigned>(stage) * Shape::kRowBytes +
                       static_cast<unsigned>(piece) * 16,
                   rows + piece % kPieces * 4, true);
      }
    }
    if constexpr (kMasked)
      load_marks<kStream>(mark_tiles + static_cast<unsigned>(stage) * Shape::kMarkBytes,
                          next_tile * kStream, other_count, other_tokens, b);
  };
  const auto advance = [&] {
    if (++next_tile == begin + tiles_a_head) next_tile = begin, ++next_head;
  };

  if (steps > 0) fetch(0);
  commit_copies();

  float da[kM][kWidth / 8][4] = {};
  float da2[kOwnsKeys ? kM : 1][kWidth / 8][4] = {};
  const float scale = call.scale * kLog2E;
  const unsigned by_rows = Tile::lane_by_rows(lane), by_columns = Tile::lane_by_columns(lane);

  for (int step = 0; step < steps; ++step) {
    const int tile_first = next_tile * kStream, stage = step & 1;
    // Everyone has this tile, and nobody needs the one before it any more.
    wait_copies<0>();
    __syncthreads();
    advance();
    if (step + 1 < steps) fetch(stage ^ 1);
    commit_copies();
    if (warp_first >= own_count) continue;
    const unsigned b_tile = tiles + static_cast<unsigned>(stage) * 2 * Shape::kTileBytes;
    const unsigned b2_tile = b_tile + Shape::kTileBytes;
    const unsigned rows = row_tiles + static_cast<unsigned>(stage) * Shape::kRowBytes;

#pragma unroll 1
    for (int chunk = 0; chunk < kStream / kChunk; ++chunk) {
      const int c0 = tile_first + chunk * kChunk;
      const int warp_last = warp_first + 16 * kM - 1;
      if (c0 >= other_count) break;
      if (call.causal &&
          (kOwnsKeys ? warp_first > c0 + kChunk - 1 + call.offset : c0 > warp_last + call.offset))
        continue;
      const unsigned down = static_cast<unsigned>(chunk * kChunk * Tile::kRowBytes);

      float s[kM][2][4], dp[kM][2][4];
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        float2 column_lse = {}, column_delta = {};
        if constexpr (kOwnsKeys) {
          const unsigned at =
              rows + static_cast<unsigned>(chunk * kChunk + 8 * n + lane_column) * sizeof(float);
          column_lse = *shared_pointer<float2>(at);
          column_delta = *shared_pointer<float2>(at + kStream * sizeof(float));
        }
#pragma unroll
        for (int m = 0; m < kM; ++m) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            s[m][n][e] = !kOwnsKeys ? lse[m][e / 2] : e % 2 == 0 ? column_lse.x : column_lse.y;
            dp[m][n][e] = !kOwnsKeys   ? delta[m][e / 2]
                          : e % 2 == 0 ? column_delta.x
                                       : column_delta.y;
          }
        }
      }
#pragma unroll
      for (int k = 0; k < kSteps; ++k) {
        unsigned x[4], y[4];
        ldmatrix(x, Tile::block(b_tile + down + by_columns, 0, k));
        ldmatrix(y, Tile::block(b2_tile + down + by_columns, 0, k));
#pragma unroll
        for (int m = 0; m < kM; ++m) {
          mma<T>(s[m][0], a[m][k], x[0], x[1]);
          mma<T>(s[m][1], a[m][k], x[2], x[3]);
          if constexpr (!kHold) ldmatrix(a2[m][0], Tile::block(second + lane_own, m, k));
          mma<T>(dp[m][0], a2[m][kHold ? k : 0], y[0], y[1]);
          mma<T>(dp[m][1], a2[m][kHold ? k : 0], y[2], y[3]);
        }
      }

      const bool open = !kMasked && (kOwnsKeys || c0 + kChunk <= other_count) &&
                        (!call.causal || (kOwnsKeys ? warp_last <= c0 + call.offset
                                                    : c0 + kChunk - 1 <= warp_first + call.offset));
      if (!open) {
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          int4 mark = {};
          if constexpr (kMasked)
            mark = mark_pair(mark_tiles + static_cast<unsigned>(stage) * Shape::kMarkBytes,
                             chunk * kChunk + 8 * n + lane_column);
#pragma unroll
          for (int m = 0; m < kM; ++m) {
#pragma unroll
            for (int e = 0; e < 4; ++e) {
              const int own = lane_row + 16 * m + e / 2 * 8;
              const int other = c0 + 8 * n + lane_column + e % 2;
              const int key = kOwnsKeys ? own : other, query = kOwnsKeys ? other : own;
              bool seen = key < call.keys && (!call.causal || key <= query + call.offset);
              if constexpr (kMasked) {
                seen = seen && exists[m][e / 2] && (e % 2 == 0 ? mark.y : mark.w) != 0 &&
                       (e % 2 == 0 ? mark.x : mark.z) == segment[m][e / 2];
              }
              if (!seen) s[m][n][e] = __int_as_float(0xff800000);
            }
          }
        }
      }

      unsigned p[kOwnsKeys ? kM : 1][4], ds[kM][4];
#pragma unroll
      for (int m = 0; m < kM; ++m) {
#pragma unroll
        for (int n = 0; n < 2; ++n) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            s[m][n][e] = exp2_fast(s[m][n][e] * scale);
            dp[m][n][e] *= s[m][n][e];
          }
        }
        if constexpr (kOwnsKeys) as_operand<T>(p[m], s[m][0], s[m][1]);
        as_operand<T>(ds[m], dp[m][0], dp[m][1]);
      }

#pragma unroll
      for (int n = 0; n < kWidth / 16; ++n) {
        unsigned x[4];
        if constexpr (kOwnsKeys) {
          ldmatrix_transposed(x, Tile::block(b2_tile + down + by_rows, 0, n));
#pragma unroll
          for (int m = 0; m < kM; ++m) {
            mma<T>(da2[m][2 * n], p[m], x[0], x[1]);
            mma<T>(da2[m][2 * n + 1], p[m], x[2], x[3]);
          }
        }
        ldmatrix_transposed(x, Tile::block(b_tile + down + by_rows, 0, n));
#pragma unroll
        for (int m = 0; m < kM; ++m) {
          mma<T>(da[m][2 * n], ds[m], x[0], x[1]);
          mma<T>(da[m][2 * n + 1], ds[m], x[2], x[3]);
        }
      }
    }
  }

  wait_copies<0>();
  __syncthreads();  // the stream's room takes the results, each warp's in its own rows
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int n = 0; n < kWidth / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e)
        da[m][n][e] *= call.scale;
    }
  }
  const HeadRows& one = kOwnsKeys ? call.dk : call.dq;
  if (one.data != nullptr)
    store_rows<T, kWidth, kM>(tiles, warp * 16 * kM, one.at<T>(b, own_head), one.row, warp_first,
                              own_count, call.width, da);
  if constexpr (kOwnsKeys) {
    if (call.dv.data != nullptr)
      store_rows<T, kWidth, kM>(tiles + static_cast<unsigned>(kM) * Shape::kTileBytes,
                                warp * 16 * kM, call.dv.at<T>(b, own_head), call.dv.row, warp_first,
                                own_count, call.value_width, da2);
  }
}

template <class T, class Shape, bool kMasked>
__global__ __launch_bounds__(kFlashThreads, Shape::kBlocks) void flash_backward_kernel(
    const __grid_constant__ FlashCall call, const BackwardOrder order) {
  const int block = static_cast<int>(blockIdx.x), section = block / order.blocks_of_section;
  const int in_section = block - section * order.blocks_of_section;
  const int first = section * order.keys.section;
  const int key_blocks = min(order.keys.section, order.keys.heads - first) * order.keys.tiles;
  // Under causality the first keys are seen by most queries, and the last queries see most keys.
  if (in_section < key_blocks) {
    const auto place = order.keys.at(first * order.keys.tiles + in_section);
    gradient_tile<T, Shape, kMasked, true>(call, place.head / call.kv_heads,
                                           place.head % call.kv_heads, place.tile * Shape::kOwn);
  } else {
    const auto place = order.queries.at(section * order.queries.section * order.queries.tiles +
                                        in_section - key_blocks);
    gradient_tile<T, Shape, kMasked, false>(call, place.head / call.heads, place.head % call.heads,
                                            (order.queries.tiles - 1 - place.tile) * Shape::kOwn);
  }
}

template <class T, class Shape, bool kMasked>
void launch_backward(StreamRef stream, const FlashCall& call) {
  constexpr unsigned kBytes = Shape::bytes(kMasked);
  const bool keys = call.dk.data != nullptr || call.dv.data != nullptr;
  const bool queries = call.dq.data != nullptr;
  BackwardOrder order;
  order.keys.heads = call.batch * call.kv_heads;
  order.keys.tiles = keys ? (call.keys + Shape::kOwn - 1) / Shape::kOwn : 0;
  order.keys.section = section_heads(
      (std::int64_t{call.keys} + std::int64_t{call.queries} * call.group) * 4 * Shape::kWidth,
      order.keys.heads);
  order.queries.heads = call.batch * call.heads;
  order.queries.tiles = queries ? (call.queries + Shape::kOwn - 1) / Shape::kOwn : 0;
  order.queries.section = order.keys.section * call.group;
  order.blocks_of_section =
      order.keys.section * (order.keys.tiles + order.queries.tiles * call.group);
  const int blocks = order.keys.heads * (order.keys.tiles + order.queries.tiles * call.group);
  if (blocks == 0) return;
  const auto kernel = flash_backward_kernel<T, Shape, kMasked>;
  check_call(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
             "flash_backward");
  kernel<<<static_cast<unsigned>(blocks), kFlashThreads, kBytes, stream_of(stream)>>>(call, order);
  check_launch("flash_backward");
}

template <class Shape>
void launch_backward(StreamRef stream, const FlashCall& call, DType dtype) {
  const bool masked = call.masked();
  if (dtype == DType::bf16)
    masked ? launch_backward<bf16, Shape, true>(stream, call)
           : launch_backward<bf16, Shape, false>(stream, call);
  else
    masked ? launch_backward<f16, Shape, true>(stream, call)
           : launch_backward<f16, Shape, false>(stream, call);
}

}  // namespace fovea::cuda
