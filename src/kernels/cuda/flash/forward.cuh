#pragma once
// The tensor-core forward kernel: FlashAttention-2's loop (Dao 2023) for mma.sync.
//
// A block of four warps owns 64 kM queries and walks the key tiles it sees from the first to the
// last; each warp owns 16 kM queries whole, so softmax needs no other warp. Keys and values come by
// cp.async: with two stages the next tile while this one is worked on; with one, the values during
// the scores and the next keys during the sums of values, for half the memory. Probabilities go
// from accumulators to operands without leaving the registers. A banded kernel starts at the first
// key tile that one of its queries sees. A masked kernel also follows a plan:
// whole tiles skip all mask code, in tiles seen in part each lane asks the rule for one row's word
// and the others' words come by shuffles. Traffic: q, o once; k, v once a query tile that sees
// them, from L2 in all but the first use.

#include "kernels/cuda/flash/softmax.cuh"
#include "kernels/cuda/flash/walk.cuh"

namespace fovea::cuda {

// Queries and keys of up to kWidth, values of up to kValueWidth.
template <int kWidth_, int kValueWidth_, int kM_, int kBlocks_, bool kHoldQueries_, int kStages_,
          bool kBanded_ = false>
struct ForwardShape {
  using Banded = ForwardShape<kWidth_, kValueWidth_, kM_, kBlocks_, kHoldQueries_, kStages_, true>;
  static constexpr bool kBanded = kBanded_;
  static constexpr int kWidth = kWidth_, kValueWidth = kValueWidth_, kM = kM_, kBlocks = kBlocks_;
  static constexpr bool kHoldQueries = kHoldQueries_;  // in registers
  static constexpr int kStages = kStages_, kKeys = kPlanTile;
  static constexpr int kQueries = 64 * kM;
  static constexpr unsigned kQueryBytes = kQueries * kWidth * 2, kKeyBytes = kKeys * kWidth * 2;
  static constexpr unsigned kValueBytes = kKeys * kValueWidth * 2;
  static constexpr unsigned kStageBytes = kKeyBytes + kValueBytes;
  static constexpr unsigned kMarkBytes = kKeys * sizeof(int2);
  // queries | k, v | k, v | marks | marks | narrowed(); and room for aligning. The results take the
  // place of queries, keys and values.
  static constexpr unsigned kTileBytes = kQueryBytes + kStages * kStageBytes;
  static constexpr unsigned bytes(bool masked) {
    return kTileBytes + (masked ? 2 * kMarkBytes + 16 : kAhead ? kQueryBytes : 0) + 1024;
  }
  // Whether a block does several query tiles, and brings one in ahead; those of odd turns behind
  // all.
  static constexpr bool kAhead =
      kBanded && kHoldQueries && kStages == 2 && kWidth == kValueWidth && kWidth <= 64;
  static_assert(kStages == 1 || kStages == 2);
  static_assert(kTileBytes >= kQueries * kValueWidth * 2);
};

template <class T, class Shape, bool kMasked>
__global__ __launch_bounds__(kFlashThreads, Shape::kBlocks) void flash_forward_kernel(
    const __grid_constant__ FlashCall call, const TileOrder order) {
  constexpr int kWidth = Shape::kWidth, kValueWidth = Shape::kValueWidth;
  constexpr int kKeys = Shape::kKeys, kM = Shape::kM;
  constexpr int kSteps = kWidth / 16, kQueries = Shape::kQueries;
  constexpr bool kDouble = Shape::kStages == 2;
  using Tile = Swizzled<kWidth>;
  using ValueTile = Swizzled<kValueWidth>;
  constexpr bool kAhead = Shape::kAhead && !kMasked;
  const unsigned tiles_of_block = tile_base();
  const unsigned key_tiles = tiles_of_block + Shape::kQueryBytes;  // k, v of each stage
  const unsigned mark_tiles = tiles_of_block + Shape::kTileBytes;
  const auto query_tile_of = [&](int work) {
    return tiles_of_block + (kAhead && work % 2 != 0 ? Shape::kTileBytes : 0);
  };

  const int blocks = static_cast<int>(gridDim.x);
  int block = static_cast<int>(blockIdx.x), work = 0, turn = 0;
  // One pass, or ahead one for each query tile of the block.
#pragma unroll 1
  do {
    const unsigned query_tile = query_tile_of(work);
    const TileOrder::Place place = order.at(block);
    const int b = place.head / call.heads, h = place.head % call.heads, kv = h / call.group;
    // Under causality the last queries see most: they come first.
    const int query_block = order.tiles - 1 - place.tile, first = query_block * kQueries;
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = uniform_warp();
    const int warp_first = first + warp * 16 * kM;
    const int lane_row = warp_first + lane / 4, lane_column = lane % 4 * 2;
    const T* keys = call.k.at<const T>(b, kv);
    const T* values = call.v.at<const T>(b, kv);
    const bool planned = kMasked && call.plan.present, marked = kMasked && call.marked();
    const std::int32_t* query_order = kMasked ? call.plan.query_order(b, h) : nullptr;
    const std::int32_t* key_order = kMasked ? call.plan.key_order(b, kv) : nullptr;
    const int key_end = kMasked ? call.plan.key_end(b, h) : kNoToken;

    TokenRange range = {0, call.keys};
    if (call.causal) range.end = min(range.end, min(first + kQueries, call.queries) + call.offset);
    if (Shape::kBanded) range.begin = max(0, first + call.offset - call.span);
    int segment[kM][2] = {};
    if constexpr (kMasked) {
      if (!planned) {
        range = narrowed(range, mark_tiles + 2 * Shape::kMarkBytes, call.query_tokens, first,
                         min(kQueries, call.queries - first), call.key_tokens, b);
      }
      if (marked) {
#pragma unroll
        for (int m = 0; m < kM; ++m) {
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            segment[m][r] =
                mark_of(call.query_tokens, b, lane_row + 16 * m + 8 * r, call.queries, query_order)
                    .x;
          }
        }
      }
    }
    using Cursor = TileCursor<kMasked, kM>;
    Cursor next = [&] {
      if constexpr (kMasked) {
        if (planned) return Cursor(call.plan, call.plan.of_queries, b, query_block * kM, h, 1);
      }
      const int begin = range.begin / kKeys;
      return Cursor(h, 1, begin, max(begin, (range.end + kKeys - 1) / kKeys));
    }();

    const auto fetch_keys = [&](int tile, int stage) {
      const unsigned to =
          key_tiles + static_cast<unsigned>(kDouble ? stage : 0) * Shape::kStageBytes;
      load_tile<T, kWidth, kKeys, kMasked>(to, keys, call.k.row, tile * kKeys, call.keys,
                                           call.width, call.key_tokens, b, key_order, key_end);
      if (marked)
        load_marks<kKeys>(mark_tiles + static_cast<unsigned>(stage) * Shape::kMarkBytes,
                          tile * kKeys, call.keys, call.key_tokens, b, key_order);
    };
    const auto fetch_values = [&](int tile, int stage) {
      const unsigned to =
          key_tiles + static_cast<unsigned>(stage) * Shape::kStageBytes + Shape::kKeyBytes;
      load_tile<T, kValueWidth, kKeys, kMasked>(to, values, call.v.row, tile * kKeys, call.keys,
                                                call.value_width, call.key_tokens, b, key_order,
                                                key_end);
    };

    // The queries of another place, and the first keys and values that they meet.
    const auto fetch_ahead = [&](const TileOrder::Place& at, int stage) {
      const int other = at.head / call.heads, head = at.head % call.heads;
      const int from = (order.tiles - 1 - at.tile) * kQueries;
      const int tile = max(0, from + call.offset - call.span) / kKeys;
      const unsigned to = key_tiles + static_cast<unsigned>(stage) * Shape::kStageBytes;
      load_tile<T, kWidth, kQueries, false>(query_tile_of(work + 1),
                                            call.q.at<const T>(other, head), call.q.row, from,
                                            call.queries, call.width, call.query_tokens, other);
      load_tile<T, kWidth, kKeys, false>(to, call.k.at<const T>(other, head / call.group),
                                         call.k.row, tile * kKeys, call.keys, call.width,
                                         call.key_tokens, other);
      load_tile<T, kValueWidth, kKeys, false>(
          to + Shape::kKeyBytes, call.v.at<const T>(other, head / call.group), call.v.row,
          tile * kKeys, call.keys, call.value_width, call.key_tokens, other);
    };

    if (!kAhead || work == 0) {
      load_tile<T, kWidth, kQueries, kMasked>(
          query_tile, call.q.at<const T>(b, h), call.q.row, first, call.queries, call.width,
          call.query_tokens, b, query_order, kMasked ? call.plan.query_end(b, h) : kNoToken);
      if (!next.done()) {
        fetch_keys(next.tile, 0);
        if constexpr (kDouble) fetch_values(next.tile, 0);
      }
      commit_copies();
    }

    float o[kM][kValueWidth / 8][4] = {};
    RunningSoftmax<kM> softmax;
    const float scale = call.scale * kLog2E;
    const unsigned by_columns = Tile::lane_by_columns(lane);
    const unsigned lane_queries = query_tile +
                                  static_cast<unsigned>(warp * 16 * kM * Tile::kRowBytes) +
                                  Tile::lane_by_rows(lane);
    unsigned q[kM][Shape::kHoldQueries ? kSteps : 1][4];
    if constexpr (Shape::kHoldQueries) {
      wait_copies<0>();
      __syncthreads();
#pragma unroll
      for (int m = 0; m < kM; ++m) {
#pragma unroll
        for (int step = 0; step < kSteps; ++step)
          ldmatrix(q[m][step], Tile::block(lane_queries, m, step));
      }
    }

    for (; !next.done(); ++turn) {
      const int first_key = next.tile * kKeys, stage = kDouble ? turn & 1 : 0;
      const int mark_stage = turn & 1;  // marks have two stages anyway
      const unsigned state = next.state >> (warp * kM / 4 * 2) & 3u;
      // Everyone has this tile (one stage: its keys), and nobody needs the one before it any more.
      wait_copies<0>();
      __syncthreads();
      if constexpr (!kDouble) fetch_values(next.tile, 0);
      next.advance();
      if constexpr (kDouble) {
        if (!next.done()) {
          fetch_keys(next.tile, stage ^ 1);
          fetch_values(next.tile, stage ^ 1);
        } else if (kAhead && block + blocks < order.heads * order.tiles) {
          fetch_ahead(order.at(block + blocks), stage ^ 1);
        }
      }
      commit_copies();
      const bool idle =
          warp_first >= call.queries ||
          (planned ? state == kUnseen
                   : call.causal && first_key > warp_first + 16 * kM - 1 + call.offset) ||
          (Shape::kBanded && first_key + kKeys <= warp_first + call.offset - call.span);
      if constexpr (kDouble) {
        if (idle) continue;
      }
      const unsigned tiles = key_tiles + static_cast<unsigned>(stage) * Shape::kStageBytes;

      std::uint64_t word = 0;
      if constexpr (kMasked) {
        if (planned && state == kSeenInPart && !idle)
          word = rule_word_of_lane(call.plan.sight, b, h, warp_first + lane % (16 * kM),
                                   first_key / kKeys);
      }

      float s[kM][kKeys / 8][4] = {};
      if (kDouble || !idle) {
        const unsigned lane_keys = tiles + by_columns;
#pragma unroll
        for (int step = 0; step < kSteps; ++step) {
          if constexpr (!Shape::kHoldQueries) {
#pragma unroll
            for (int m = 0; m < kM; ++m)
              ldmatrix(q[m][0], Tile::block(lane_queries, m, step));
          }
#pragma unroll
          for (int n = 0; n < kKeys / 16; ++n) {
            unsigned k[4];
            ldmatrix(k, Tile::block(lane_keys, n, step));
#pragma unroll
            for (int m = 0; m < kM; ++m) {
              mma<T>(s[m][2 * n], q[m][Shape::kHoldQueries ? step : 0], k[0], k[1]);
              mma<T>(s[m][2 * n + 1], q[m][Shape::kHoldQueries ? step : 0], k[2], k[3]);
            }
          }
        }
      }
      if constexpr (!kDouble) {
        // Everyone has the values, and nobody needs the keys any more.
        wait_copies<0>();
        __syncthreads();
        if (!next.done()) fetch_keys(next.tile, mark_stage ^ 1);
        commit_copies();
        if (idle) continue;
      }

      if constexpr (kMasked) {
        if (planned && state == kSeenInPart) hide_by_words(s, word);
        if (!planned || first_key + kKeys > call.keys ||
            (marked && (state != kSeenWhole || !call.plan.counts_tokens))) {
          hide_scores<kM, kKeys / 8, true, Shape::kBanded>(
              s, call, lane_row, first_key + lane_column,
              mark_tiles + static_cast<unsigned>(mark_stage) * Shape::kMarkBytes, segment, planned,
              marked);
        }
      } else if (first_key + kKeys > call.keys ||
                 (call.causal && first_key + kKeys - 1 > warp_first + call.offset) ||
                 (Shape::kBanded &&
                  first_key < warp_first + 16 * kM - 1 + call.offset - call.span)) {
        hide_scores<kM, kKeys / 8, false, Shape::kBanded>(
            s, call, lane_row, first_key + lane_column, 0, segment, false, false);
      }

      float shrink[kM][2];
      if (softmax.advance(s, scale, shrink)) shrink_rows(o, shrink);

      const unsigned lane_values = tiles + Shape::kKeyBytes + ValueTile::lane_by_rows(lane);
#pragma unroll
      for (int step = 0; step < kKeys / 16; ++step) {
        unsigned p[kM][4];
#pragma unroll
        for (int m = 0; m < kM; ++m) {
#pragma unroll
          for (int n = 2 * step; n < 2 * step + 2; ++n)
            softmax.weigh(s[m][n], m, scale);
          as_operand<T>(p[m], s[m][2 * step], s[m][2 * step + 1]);
        }
#pragma unroll
        for (int n = 0; n < kValueWidth / 16; ++n) {
          unsigned v[4];
          ldmatrix_transposed(v, ValueTile::block(lane_values, step, n));
#pragma unroll
          for (int m = 0; m < kM; ++m) {
            mma<T>(o[m][2 * n], p[m], v[0], v[1]);
            mma<T>(o[m][2 * n + 1], p[m], v[2], v[3]);
          }
        }
      }
    }

    if constexpr (!kAhead) {
      wait_copies<0>();  // a block that saw no key still has its queries on the way
      __syncthreads();
    }
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int row = lane_row + 16 * m + 8 * r;
        const float sum = quad_sum(softmax.sum[m][r]);
        bool any = sum != 0;
        const int token = kMasked && row < call.queries ? token_at(query_order, row) : row;
        if constexpr (kMasked)
          any = any && row < call.queries && call.query_tokens.is_valid(b, token);
        const float inverse = 1 / sum;
#pragma unroll
        for (int n = 0; n < kValueWidth / 8; ++n) {
          o[m][n][2 * r] = any ? o[m][n][2 * r] * inverse : 0;
          o[m][n][2 * r + 1] = any ? o[m][n][2 * r + 1] * inverse : 0;
        }
        if (lane % 4 == 0 && row < call.queries) {
          call.lse[static_cast<std::int64_t>(place.head) * call.queries + token] =
              any ? (softmax.reference[m][r] + log2f(sum)) * kLn2 : __int_as_float(0xff800000);
        }
      }
    }
    // Nobody needs queries, keys and values any more: their room takes the results. (Ahead: a
    // warp's own queries, which it holds.)
    store_rows<T, kValueWidth, kM, kMasked>(query_tile, warp * 16 * kM, call.o.at<T>(b, h),
                                            call.o.row, warp_first, call.queries, call.value_width,
                                            o, query_order);
    block += blocks, ++work;
  } while (kAhead && block < order.heads * order.tiles);
}

template <class T, class Shape, bool kMasked>
void launch_forward(StreamRef stream, const FlashCall& call) {
  constexpr unsigned kBytes = Shape::bytes(kMasked);
  TileOrder order;
  order.heads = call.batch * call.heads;
  order.tiles = (call.queries + Shape::kQueries - 1) / Shape::kQueries;
  // Only causal tiles differ in length.
  order.section = call.causal || call.plan.present
                      ? section_heads(std::int64_t{call.keys} * 2 *
                                          (Shape::kWidth + Shape::kValueWidth) / call.group,
                                      order.heads)
                      : 1;
  int blocks = order.heads * order.tiles;
  if (Shape::kAhead && !kMasked && blocks > Shape::kBlocks * multiprocessors())
    blocks = Shape::kBlocks * multiprocessors();
  launch_shared(stream, "flash_forward", flash_forward_kernel<T, Shape, kMasked>,
                static_cast<unsigned>(blocks), kFlashThreads, kBytes, call, order);
}

// Masks need registers, so masked calls may have a shape of their own; with the same key tiles, for
// a row's bits follow from them.
template <class Shape, class MaskedShape>
void launch_forward(StreamRef stream, const FlashCall& call, DType dtype) {
  static_assert(Shape::kWidth == MaskedShape::kWidth &&
                Shape::kValueWidth == MaskedShape::kValueWidth);
  const bool masked = call.masked();
  if (dtype == DType::bf16)
    masked ? launch_forward<bf16, MaskedShape, true>(stream, call)
           : launch_forward<bf16, Shape, false>(stream, call);
  else
    masked ? launch_forward<f16, MaskedShape, true>(stream, call)
           : launch_forward<f16, Shape, false>(stream, call);
}

}  // namespace fovea::cuda
