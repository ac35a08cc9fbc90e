#pragma once
// The gradients of one block's own tokens: backward.cuh says how.

#include "kernels/cuda/flash/walk.cuh"

namespace fovea::cuda {

constexpr int kChunk = 16;  // other tokens at once

// What a block makes.
enum class Makes { queries, keys, first_of_keys, second_of_keys };  // dQ; dK and dV; dK; dV

// kKeyM, kQueryM: kM of the owners of keys and of queries. kHoldValues, kHoldOutputs: whether they
// hold their second operand in registers too, or read it from shared memory for every chunk.
// kSplit: dK and dV in blocks of their own. kStream: other tokens a shared tile.
template <int kWidth_, int kValueWidth_, int kKeyM_, int kQueryM_, int kBlocks_, bool kHoldValues_,
          bool kHoldOutputs_, bool kSplit_ = false, int kStream_ = kPlanTile>
struct BackwardShape {
  static constexpr int kWidth = kWidth_, kValueWidth = kValueWidth_;
  static constexpr int kKeyM = kKeyM_, kQueryM = kQueryM_, kBlocks = kBlocks_;
  static constexpr int kStream = kStream_, kOwnKeys = 64 * kKeyM, kOwnQueries = 64 * kQueryM;
  static constexpr bool kHoldValues = kHoldValues_, kHoldOutputs = kHoldOutputs_, kSplit = kSplit_;
  static constexpr unsigned kFirstBytes = kStream * kWidth * 2;
  static constexpr unsigned kSecondBytes = kStream * kValueWidth * 2;
  static constexpr unsigned kStageBytes = kFirstBytes + kSecondBytes;
  static constexpr unsigned kRowBytes = 2 * kStream * sizeof(float);  // lse and delta
  static constexpr unsigned kMarkBytes = kStream * sizeof(int2);
  static constexpr int kMostM = kKeyM > kQueryM ? kKeyM : kQueryM;
  static constexpr int kKeptM = (kHoldValues ? 0 : kKeyM) > (kHoldOutputs ? 0 : kQueryM)
                                    ? (kHoldValues ? 0 : kKeyM)
                                    : (kHoldOutputs ? 0 : kQueryM);
  static constexpr unsigned kKeptBytes = kKeptM * 64 * kValueWidth * 2;
  // b, b' | b, b' | own second operand | lse, delta | lse, delta | marks | marks | narrowed(); and
  // room for aligning. Own operands on their way to registers and results share the first part.
  static constexpr unsigned kTileBytes = 2 * kStageBytes + kKeptBytes;
  static constexpr unsigned bytes(bool masked) {
    return kTileBytes + 2 * kRowBytes + (masked ? 2 * kMarkBytes + 16 : 0) + 1024;
  }
  static_assert(kPlanTile % kStream == 0);
  static_assert(kMostM * 64 * (kWidth + kValueWidth) * 2 <= kTileBytes);
  static_assert(kMostM * 64 * kWidth * 2 <= 2 * kStageBytes);
};

template <class T, class Shape, bool kMasked, Makes kMakes>
__device__ __forceinline__ void gradient_tile(const FlashCall& call, int b, int own_head,
                                              int own_block) {
  constexpr bool kOwnsKeys = kMakes != Makes::queries;
  constexpr bool kFirst = kMakes != Makes::second_of_keys;               // makes dQ or dK
  constexpr bool kSecond = kOwnsKeys && kMakes != Makes::first_of_keys;  // makes dV
  constexpr int kWidth = Shape::kWidth, kValueWidth = Shape::kValueWidth;
  constexpr int kM = kOwnsKeys ? Shape::kKeyM : Shape::kQueryM, kOwn = 64 * kM;
  constexpr int kStream = Shape::kStream, kParts = kPlanTile / kStream;
  constexpr int kSteps = kWidth / 16, kValueSteps = kValueWidth / 16;
  using Tile = Swizzled<kWidth>;
  using ValueTile = Swizzled<kValueWidth>;
  const unsigned tiles = tile_base();
  const unsigned row_tiles = tiles + Shape::kTileBytes;
  const unsigned mark_tiles = row_tiles + 2 * Shape::kRowBytes;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = uniform_warp();
  const int first = own_block * kOwn, warp_first = first + warp * 16 * kM;
  const int lane_row = warp_first + lane / 4, lane_column = lane % 4 * 2;
  const int kv = kOwnsKeys ? own_head : own_head / call.group;
  const int own_count = kOwnsKeys ? call.keys : call.queries;
  const int other_count = kOwnsKeys ? call.queries : call.keys;
  const Tokens& own_tokens = kOwnsKeys ? call.key_tokens : call.query_tokens;
  const Tokens& other_tokens = kOwnsKeys ? call.query_tokens : call.key_tokens;
  const bool planned = kMasked && call.plan.present, marked = kMasked && call.marked();
  const std::int32_t* own_order = !kMasked    ? nullptr
                                  : kOwnsKeys ? call.plan.key_order(b, own_head)
                                              : call.plan.query_order(b, own_head);
  const int own_end = !kMasked    ? kNoToken
                      : kOwnsKeys ? call.plan.key_end(b, own_head * call.group, call.group)
                                  : call.plan.query_end(b, own_head);

  // Which of the others any own token sees or is seen by.
  TokenRange range = {0, other_count};
  if (call.causal) {
    if (kOwnsKeys)
      range.begin = max(0, first - call.offset);
    else
      range.end = min(range.end, min(first + kOwn, own_count) + call.offset);
  }
  int segment[kM][2] = {};
  bool exists[kM][2] = {};
  if constexpr (kMasked) {
    if (!planned) {
      range = narrowed(range, mark_tiles + 2 * Shape::kMarkBytes, own_tokens, first,
                       min(kOwn, own_count - first), other_tokens, b);
    }
    if (marked) {
#pragma unroll
      for (int m = 0; m < kM; ++m) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const int2 mark = mark_of(own_tokens, b, lane_row + 16 * m + 8 * r, own_count, own_order);
          segment[m][r] = mark.x, exists[m][r] = mark.y != 0;
        }
      }
    }
  }

  // The own operands, through the stream's room if they are to be held.
  constexpr bool kHold = kOwnsKeys ? Shape::kHoldValues : Shape::kHoldOutputs;
  const unsigned second =
      tiles + (kHold ? static_cast<unsigned>(kOwn * kWidth * 2) : 2 * Shape::kStageBytes);
  const unsigned lane_own =
      static_cast<unsigned>(warp * 16 * kM * Tile::kRowBytes) + Tile::lane_by_rows(lane);
  const unsigned lane_second = second +
                               static_cast<unsigned>(warp * 16 * kM * ValueTile::kRowBytes) +
                               ValueTile::lane_by_rows(lane);
  unsigned a[kM][kSteps][4], a2[kFirst ? kM : 1][kFirst && kHold ? kValueSteps : 1][4];
  {
    const HeadRows& one = kOwnsKeys ? call.k : call.q;
    const HeadRows& two = kOwnsKeys ? call.v : call.dout;
    load_tile<T, kWidth, kOwn, kMasked>(tiles, one.at<const T>(b, own_head), one.row, first,
                                        own_count, call.width, own_tokens, b, own_order, own_end);
    if constexpr (kFirst)
      load_tile<T, kValueWidth, kOwn, kMasked>(second, two.at<const T>(b, own_head), two.row, first,
                                               own_count, call.value_width, own_tokens, b,
                                               own_order, own_end);
    commit_copies();
    wait_copies<0>();
    __syncthreads();
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int step = 0; step < kSteps; ++step)
        ldmatrix(a[m][step], Tile::block(tiles + lane_own, m, step));
      if constexpr (kFirst && kHold) {
#pragma unroll
        for (int step = 0; step < kValueSteps; ++step)
          ldmatrix(a2[m][step], ValueTile::block(lane_second, m, step));
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

  // What comes next: a tile, in kParts parts; query heads of the group one after another.
  const int first_head = kOwnsKeys ? kv * call.group : own_head;
  using Cursor = TileCursor<kMasked, kM>;
  Cursor next = [&] {
    const int heads = kOwnsKeys ? call.group : 1;
    if constexpr (kMasked) {
      if (planned)
        return Cursor(call.plan, kOwnsKeys ? call.plan.of_keys : call.plan.of_queries, b,
                      own_block * kM, first_head, heads);
    }
    const int begin = range.begin / kPlanTile;
    return Cursor(first_head, heads, begin, (range.end + kPlanTile - 1) / kPlanTile);
  }();
  int part = 0;
  const auto fetch = [&](int stage) {
    const HeadRows& one = kOwnsKeys ? call.q : call.k;
    const HeadRows& two = kOwnsKeys ? call.dout : call.v;
    const int head = kOwnsKeys ? next.head : kv, from = next.tile * kPlanTile + part * kStream;
    const std::int32_t* order = !kMasked    ? nullptr
                                : kOwnsKeys ? call.plan.query_order(b, head)
                                            : call.plan.key_order(b, head);
    const int end = !kMasked    ? kNoToken
                    : kOwnsKeys ? call.plan.query_end(b, head)
                                : call.plan.key_end(b, own_head);
    const unsigned to = tiles + static_cast<unsigned>(stage) * Shape::kStageBytes;
    load_tile<T, kWidth, kStream, kMasked>(to, one.at<const T>(b, head), one.row, from, other_count,
                                           call.width, other_tokens, b, order, end);
    load_tile<T, kValueWidth, kStream, kMasked>(to + Shape::kFirstBytes, two.at<const T>(b, head),
                                                two.row, from, other_count, call.value_width,
                                                other_tokens, b, order, end);
    if constexpr (kOwnsKeys) {
      constexpr int kPieces = kStream / 4;  // 16 bytes each, of one plane
      const int piece = static_cast<int>(threadIdx.x);
      if (piece < 2 * kPieces) {
        const float* rows = call.rows + (piece < kPieces ? 0 : plane) +
                            static_cast<std::int64_t>(b * call.heads + head) * call.padded_queries +
                            from;
        copy_async(row_tiles + static_cast<unsigned>(stage) * Shape::kRowBytes +
                       static_cast<unsigned>(piece) * 16,
                   rows + piece % kPieces * 4, true);
      }
    }
    if (marked)
      load_marks<kStream>(mark_tiles + static_cast<unsigned>(stage) * Shape::kMarkBytes, from,
                          other_count, other_tokens, b, order);
  };

  if (!next.done()) fetch(0);
  commit_copies();

  float da[kFirst ? kM : 1][kWidth / 8][4] = {};
  float da2[kSecond ? kM : 1][kValueWidth / 8][4] = {};
  const float scale = call.scale * kLog2E;
  const unsigned by_rows = Tile::lane_by_rows(lane), by_columns = Tile::lane_by_columns(lane);
  const unsigned by_value_rows = ValueTile::lane_by_rows(lane),
                 by_value_columns = ValueTile::lane_by_columns(lane);

  for (int stage = 0; !next.done(); stage ^= 1) {
    const int tile = next.tile, tile_first = tile * kPlanTile + part * kStream;
    const unsigned state = next.state >> (warp * kM / 4 * 2) & 3u;
    const int head = next.head;
    // Everyone has this tile, and nobody needs the one before it any more.
    wait_copies<0>();
    __syncthreads();
    if (++part == kParts) part = 0, next.advance();
    if (!next.done()) fetch(stage ^ 1);
    commit_copies();
    if (warp_first >= own_count || (planned && state == kUnseen)) continue;
    const unsigned b_tile = tiles + static_cast<unsigned>(stage) * Shape::kStageBytes;
    const unsigned b2_tile = b_tile + Shape::kFirstBytes;
    const unsigned rows = row_tiles + static_cast<unsigned>(stage) * Shape::kRowBytes;

    // The rule's words of a tile seen in part. Owners of queries: a row's word in its lane. Owners
    // of keys: the words of queries lane and lane + 32 of the shared tile, for the warp's keys.
    unsigned words[2] = {};
    if constexpr (kMasked) {
      if (planned && state == kSeenInPart) {
        if constexpr (kOwnsKeys) {
#pragma unroll
          for (int i = 0; i < kStream / 32; ++i) {
            words[i] = static_cast<unsigned>(rule_word_of_lane(call.plan.sight, b, head,
                                                               tile_first + lane + 32 * i,
                                                               warp_first / kPlanTile) >>
                                             (warp_first % kPlanTile));
          }
        } else {
          const std::uint64_t word =
              rule_word_of_lane(call.plan.sight, b, head, warp_first + lane % (16 * kM), tile) >>
              (tile_first % kPlanTile);
          words[0] = static_cast<unsigned>(word), words[1] = static_cast<unsigned>(word >> 32);
        }
      }
    }

#pragma unroll 1
    for (int chunk = 0; chunk < kStream / kChunk; ++chunk) {
      const int c0 = tile_first + chunk * kChunk;
      const int warp_last = warp_first + 16 * kM - 1;
      if (c0 >= other_count) break;
      if (!planned && call.causal &&
          (kOwnsKeys ? warp_first > c0 + kChunk - 1 + call.offset : c0 > warp_last + call.offset))
        continue;
      const unsigned down = static_cast<unsigned>(chunk * kChunk * Tile::kRowBytes);
      const unsigned down2 = static_cast<unsigned>(chunk * kChunk * ValueTile::kRowBytes);

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
      for (int k = 0; k < (kSteps > kValueSteps ? kSteps : kValueSteps); ++k) {
        if (k < kSteps) {
          unsigned x[4];
          ldmatrix(x, Tile::block(b_tile + down + by_columns, 0, k));
#pragma unroll
          for (int m = 0; m < kM; ++m) {
            mma<T>(s[m][0], a[m][k < kSteps ? k : 0], x[0], x[1]);
            mma<T>(s[m][1], a[m][k < kSteps ? k : 0], x[2], x[3]);
          }
        }
        if constexpr (kFirst) {
          if (k < kValueSteps) {
            unsigned y[4];
            ldmatrix(y, ValueTile::block(b2_tile + down2 + by_value_columns, 0, k));
#pragma unroll
            for (int m = 0; m < kM; ++m) {
              const int held = kHold && k < kValueSteps ? k : 0;
              if constexpr (!kHold) ldmatrix(a2[m][0], ValueTile::block(lane_second, m, k));
              mma<T>(dp[m][0], a2[m][held], y[0], y[1]);
              mma<T>(dp[m][1], a2[m][held], y[2], y[3]);
            }
          }
        }
      }

      // Keys past the end, causality and marks; and before, what a rule says.
      bool compare;
      if constexpr (kMasked) {
        if (planned && state == kSeenInPart) {
          const unsigned mine = chunk < 2 ? words[0] : words[1];
          if constexpr (kOwnsKeys) {
#pragma unroll
            for (int n = 0; n < 2; ++n) {
#pragma unroll
              for (int odd = 0; odd < 2; ++odd) {
                const unsigned bits =
                    __shfl_sync(~0u, mine, chunk % 2 * 16 + 8 * n + lane_column + odd) >>
                    (lane / 4);
#pragma unroll
                for (int m = 0; m < kM; ++m) {
                  if ((bits >> (16 * m) & 1) == 0) s[m][n][odd] = __int_as_float(0xff800000);
                  if ((bits >> (16 * m + 8) & 1) == 0)
                    s[m][n][2 + odd] = __int_as_float(0xff800000);
                }
              }
            }
          } else {
#pragma unroll
            for (int m = 0; m < kM; ++m) {
#pragma unroll
              for (int r = 0; r < 2; ++r) {
                const unsigned bits = __shfl_sync(~0u, mine, 16 * m + 8 * r + lane / 4) >>
                                      (chunk % 2 * 16 + lane_column);
#pragma unroll
                for (int n = 0; n < 2; ++n) {
                  if ((bits >> (8 * n) & 1) == 0) s[m][n][2 * r] = __int_as_float(0xff800000);
                  if ((bits >> (8 * n + 1) & 1) == 0)
                    s[m][n][2 * r + 1] = __int_as_float(0xff800000);
                }
              }
            }
          }
        }
        compare = !planned || (!kOwnsKeys && c0 + kChunk > other_count) ||
                  (marked && (state != kSeenWhole || !call.plan.counts_tokens));
      } else {
        compare = (!kOwnsKeys && c0 + kChunk > other_count) ||
                  (call.causal && (kOwnsKeys ? warp_last > c0 + call.offset
                                             : c0 + kChunk - 1 > warp_first + call.offset));
      }
      if (compare) {
        const bool causal = call.causal && !planned;
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          int4 mark = {};
          if constexpr (kMasked) {
            if (marked)
              mark = mark_pair(mark_tiles + static_cast<unsigned>(stage) * Shape::kMarkBytes,
                               chunk * kChunk + 8 * n + lane_column);
          }
#pragma unroll
          for (int m = 0; m < kM; ++m) {
#pragma unroll
            for (int e = 0; e < 4; ++e) {
              const int own = lane_row + 16 * m + e / 2 * 8;
              const int other = c0 + 8 * n + lane_column + e % 2;
              const int key = kOwnsKeys ? own : other, query = kOwnsKeys ? other : own;
              bool seen = key < call.keys && (!causal || key <= query + call.offset);
              if constexpr (kMasked) {
                seen =
                    seen && (!marked || (exists[m][e / 2] && (e % 2 == 0 ? mark.y : mark.w) != 0 &&
                                         (e % 2 == 0 ? mark.x : mark.z) == segment[m][e / 2]));
              }
              if (!seen) s[m][n][e] = __int_as_float(0xff800000);
            }
          }
        }
      }

      unsigned p[kSecond ? kM : 1][4], ds[kFirst ? kM : 1][4];
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
        if constexpr (kSecond) as_operand<T>(p[m], s[m][0], s[m][1]);
        if constexpr (kFirst) as_operand<T>(ds[m], dp[m][0], dp[m][1]);
      }

      if constexpr (kSecond) {
#pragma unroll
        for (int n = 0; n < kValueWidth / 16; ++n) {
          unsigned x[4];
          ldmatrix_transposed(x, ValueTile::block(b2_tile + down2 + by_value_rows, 0, n));
#pragma unroll
          for (int m = 0; m < kM; ++m) {
            mma<T>(da2[m][2 * n], p[m], x[0], x[1]);
            mma<T>(da2[m][2 * n + 1], p[m], x[2], x[3]);
          }
        }
      }
      if constexpr (kFirst) {
#pragma unroll
        for (int n = 0; n < kWidth / 16; ++n) {
          unsigned x[4];
          ldmatrix_transposed(x, Tile::block(b_tile + down + by_rows, 0, n));
#pragma unroll
          for (int m = 0; m < kM; ++m) {
            mma<T>(da[m][2 * n], ds[m], x[0], x[1]);
            mma<T>(da[m][2 * n + 1], ds[m], x[2], x[3]);
          }
        }
      }
    }
  }

  wait_copies<0>();
  __syncthreads();  // the stream's room takes the results, each warp's in its own rows
  if constexpr (kFirst) {
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
      store_rows<T, kWidth, kM, kMasked>(tiles, warp * 16 * kM, one.at<T>(b, own_head), one.row,
                                         warp_first, own_count, call.width, da, own_order);
  }
  if constexpr (kSecond) {
    if (call.dv.data != nullptr)
      store_rows<T, kValueWidth, kM, kMasked>(
          tiles + (kFirst ? static_cast<unsigned>(kOwn * kWidth * 2) : 0), warp * 16 * kM,
          call.dv.at<T>(b, own_head), call.dv.row, warp_first, own_count, call.value_width, da2,
          own_order);
  }
}

}  // namespace fovea::cuda
