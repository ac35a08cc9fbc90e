#pragma once
// The tensor-core forward kernel: FlashAttention-2's loop (Dao 2023) for mma.sync.
//
// A block of four warps owns 64 kM queries and walks the key tiles it sees from the first to the
// last; each warp owns 16 kM queries whole, so softmax needs no other warp. Keys and values come by
// cp.async, the next tile while this one is worked on. Probabilities go from accumulators to
// operands without leaving the registers.
// Traffic: q, o once; k, v once a query tile that sees them, from L2 in all but the first use.

#include "kernels/cuda/flash/tokens.cuh"

namespace fovea::cuda {

// The reference of a row's exponentials is not its running maximum but one that is at most this
// much (in powers of two) below it, so that accumulators are rarely rescaled. Whether a row's
// reference moves depends on the row alone.
constexpr float kSlack = 8;

template <int kWidth_, int kKeys_, int kM_, int kBlocks_, bool kHoldQueries_>
struct ForwardShape {
  static constexpr int kWidth = kWidth_, kKeys = kKeys_, kM = kM_, kBlocks = kBlocks_;
  static constexpr bool kHoldQueries = kHoldQueries_;  // in registers
  static constexpr int kQueries = 64 * kM;
  static constexpr unsigned kQueryBytes = kQueries * kWidth * 2, kKeyBytes = kKeys * kWidth * 2;
  static constexpr unsigned kMarkBytes = kKeys * sizeof(int2);
  // queries | k, v | k, v | marks | marks | narrowed(); and room for aligning.
  static constexpr unsigned bytes(bool masked) {
    return kQueryBytes + 4 * kKeyBytes + (masked ? 2 * kMarkBytes + 16 : 0) + 1024;
  }
};

// The softmax state of a lane's rows: 2 kM of them, shared by the four lanes of a quad.
template <int kM>
struct RunningSoftmax {
  float reference[kM][2], sum[kM][2];  // powers of two; sums are the lane's own columns

  __device__ __forceinline__ RunningSoftmax() {
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      reference[m][0] = reference[m][1] = __int_as_float(0xff800000);
      sum[m][0] = sum[m][1] = 0;
    }
  }

  // Moves references that have fallen behind; true if any of the warp's did, and then `shrink` is
  // what older results have to be multiplied by.
  template <int kN>
  __device__ __forceinline__ bool advance(const float (&s)[kM][kN][4], float scale,
                                          float (&shrink)[kM][2]) {
    float top[kM][2];
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        top[m][r] = fmaxf(s[m][0][2 * r], s[m][0][2 * r + 1]);
#pragma unroll
        for (int n = 1; n < kN; ++n)
          top[m][r] = fmaxf(top[m][r], fmaxf(s[m][n][2 * r], s[m][n][2 * r + 1]));
      }
    }
    // All rows at once: a shuffle's latency is paid twice, not for every row.
#pragma unroll
    for (int step = 1; step < 4; step *= 2) {
      float other[kM][2];
#pragma unroll
      for (int i = 0; i < 2 * kM; ++i)
        other[i / 2][i % 2] = __shfl_xor_sync(~0u, top[i / 2][i % 2], step);
#pragma unroll
      for (int i = 0; i < 2 * kM; ++i)
        top[i / 2][i % 2] = fmaxf(top[i / 2][i % 2], other[i / 2][i % 2]);
    }
    bool moved = false;
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float scaled = top[m][r] * scale;
        shrink[m][r] = 1;
        if (scaled > reference[m][r] + kSlack) {
          shrink[m][r] = exp2_fast(reference[m][r] - scaled);
          reference[m][r] = scaled;
          sum[m][r] *= shrink[m][r];
          moved = true;
        }
      }
    }
    return __any_sync(~0u, moved);
  }

  // What a lane's row subtracts: a row that saw nothing yet has no reference.
  __device__ __forceinline__ float base(int m, int r) const {
    return reference[m][r] == __int_as_float(0xff800000) ? 0 : reference[m][r];
  }
};

// Sets scores to -inf where a query does not see a key. `columns` and `rows` are the first key and
// query of the lane: its columns are columns + 8 n + {0, 1}, its rows rows + 16 m + {0, 8}.
template <int kM, int kN, bool kMasked>
__device__ __forceinline__ void hide_scores(float (&s)[kM][kN][4], const FlashCall& call, int rows,
                                            int columns, unsigned marks,
                                            const int (&segment)[kM][2]) {
  const float none = __int_as_float(0xff800000);
  int last[kM][2];  // the last visible column, counted from `columns`
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int end = call.keys - 1;
      last[m][r] = (call.causal ? min(rows + 16 * m + 8 * r + call.offset, end) : end) - columns;
    }
  }
#pragma unroll
  for (int n = 0; n < kN; ++n) {
    int4 mark = {};
    if constexpr (kMasked) mark = mark_pair(marks, 8 * n + static_cast<int>(threadIdx.x) % 4 * 2);
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        bool left = 8 * n <= last[m][r], right = 8 * n + 1 <= last[m][r];
        if constexpr (kMasked) {
          left = left && mark.y != 0 && mark.x == segment[m][r];
          right = right && mark.w != 0 && mark.z == segment[m][r];
        }
        if (!left) s[m][n][2 * r] = none;
        if (!right) s[m][n][2 * r + 1] = none;
      }
    }
  }
}

template <class T, class Shape, bool kMasked>
__global__ __launch_bounds__(kFlashThreads, Shape::kBlocks) void flash_forward_kernel(
    const __grid_constant__ FlashCall call, const TileOrder order) {
  constexpr int kWidth = Shape::kWidth, kKeys = Shape::kKeys, kM = Shape::kM;
  constexpr int kSteps = kWidth / 16, kQueries = Shape::kQueries;
  using Tile = Swizzled<kWidth>;
  const unsigned query_tile =
      (shared_base() + Tile::kAlignment - 1) / Tile::kAlignment * Tile::kAlignment;
  const unsigned key_tiles = query_tile + Shape::kQueryBytes;  // k, v, k, v
  const unsigned mark_tiles = key_tiles + 4 * Shape::kKeyBytes;

  const TileOrder::Place place = order.at(static_cast<int>(blockIdx.x));
  const int b = place.head / call.heads, h = place.head % call.heads, kv = h / call.group;
  // Under causality the last queries see most: they come first.
  const int first = (order.tiles - 1 - place.tile) * kQueries;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = uniform_warp();
  const int warp_first = first + warp * 16 * kM;
  const int lane_row = warp_first + lane / 4, lane_column = lane % 4 * 2;
  const T* keys = call.k.at<const T>(b, kv);
  const T* values = call.v.at<const T>(b, kv);

  TokenRange range = {0, call.keys};
  if (call.causal) range.end = min(range.end, min(first + kQueries, call.queries) + call.offset);
  int segment[kM][2] = {};
  if constexpr (kMasked) {
    range = narrowed(range, mark_tiles + 2 * Shape::kMarkBytes, call.query_tokens, first,
                     min(kQueries, call.queries - first), call.key_tokens, b);
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      segment[m][0] = mark_of(call.query_tokens, b, lane_row + 16 * m, call.queries).x;
      segment[m][1] = mark_of(call.query_tokens, b, lane_row + 16 * m + 8, call.queries).x;
    }
  }
  const int begin = range.begin / kKeys, end = max(begin, (range.end + kKeys - 1) / kKeys);

  const auto fetch = [&](int tile) {
    const unsigned to = key_tiles + static_cast<unsigned>(tile & 1) * 2 * Shape::kKeyBytes;
    load_tile<T, kWidth, kKeys, kMasked>(to, keys, call.k.row, tile * kKeys, call.keys, call.width,
                                         call.key_tokens, b);
    load_tile<T, kWidth, kKeys, kMasked>(to + Shape::kKeyBytes, values, call.v.row, tile * kKeys,
                                         call.keys, call.value_width, call.key_tokens, b);
    if constexpr (kMasked)
      load_marks<kKeys>(mark_tiles + static_cast<unsigned>(tile & 1) * Shape::kMarkBytes,
                        tile * kKeys, call.keys, call.key_tokens, b);
  };

  load_tile<T, kWidth, kQueries, false>(query_tile, call.q.at<const T>(b, h), call.q.row, first,
                                        call.queries, call.width, call.query_tokens, b);
  if (begin < end) fetch(begin);
  commit_copies();

  float o[kM][kWidth / 8][4] = {};
  RunningSoftmax<kM> softmax;
  const float scale = call.scale * kLog2E;
  const unsigned by_rows = Tile::lane_by_rows(lane), by_columns = Tile::lane_by_columns(lane);
  const unsigned lane_queries =
      query_tile + static_cast<unsigned>(warp * 16 * kM * Tile::kRowBytes) + by_rows;
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

  for (int tile = begin; tile < end; ++tile) {
    // Everyone has this tile, and nobody needs the one before it any more.
    wait_copies<0>();
    __syncthreads();
    if (tile + 1 < end) fetch(tile + 1);
    commit_copies();
    const int first_key = tile * kKeys;
    if (warp_first >= call.queries ||
        (call.causal && first_key > warp_first + 16 * kM - 1 + call.offset))
      continue;
    const unsigned stage = key_tiles + static_cast<unsigned>(tile & 1) * 2 * Shape::kKeyBytes;

    float s[kM][kKeys / 8][4] = {};
    const unsigned lane_keys = stage + by_columns;
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

    const bool open = !kMasked && first_key + kKeys <= call.keys &&
                      (!call.causal || first_key + kKeys - 1 <= warp_first + call.offset);
    if (!open) {
      hide_scores<kM, kKeys / 8, kMasked>(
          s, call, lane_row, first_key + lane_column,
          mark_tiles + static_cast<unsigned>(tile & 1) * Shape::kMarkBytes, segment);
    }

    float shrink[kM][2];
    if (softmax.advance(s, scale, shrink)) {
#pragma unroll
      for (int m = 0; m < kM; ++m) {
#pragma unroll
        for (int n = 0; n < kWidth / 8; ++n) {
          o[m][n][0] *= shrink[m][0], o[m][n][1] *= shrink[m][0];
          o[m][n][2] *= shrink[m][1], o[m][n][3] *= shrink[m][1];
        }
      }
    }

    const unsigned lane_values = stage + Shape::kKeyBytes + by_rows;
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step) {
      unsigned p[kM][4];
#pragma unroll
      for (int m = 0; m < kM; ++m) {
#pragma unroll
        for (int n = 2 * step; n < 2 * step + 2; ++n) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            s[m][n][e] = exp2_fast(fmaf(s[m][n][e], scale, -softmax.base(m, e / 2)));
            softmax.sum[m][e / 2] += s[m][n][e];
          }
        }
        as_operand<T>(p[m], s[m][2 * step], s[m][2 * step + 1]);
      }
#pragma unroll
      for (int n = 0; n < kWidth / 16; ++n) {
        unsigned v[4];
        ldmatrix_transposed(v, Tile::block(lane_values, step, n));
#pragma unroll
        for (int m = 0; m < kM; ++m) {
          mma<T>(o[m][2 * n], p[m], v[0], v[1]);
          mma<T>(o[m][2 * n + 1], p[m], v[2], v[3]);
        }
      }
    }
  }

  wait_copies<0>();  // a block that saw no key still has its queries on the way
  __syncthreads();
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = lane_row + 16 * m + 8 * r;
      float sum = softmax.sum[m][r];
      sum += __shfl_xor_sync(~0u, sum, 1);
      sum += __shfl_xor_sync(~0u, sum, 2);
      bool any = sum != 0;
      if constexpr (kMasked) any = any && row < call.queries && call.query_tokens.is_valid(b, row);
      const float inverse = 1 / sum;
#pragma unroll
      for (int n = 0; n < kWidth / 8; ++n) {
        o[m][n][2 * r] = any ? o[m][n][2 * r] * inverse : 0;
        o[m][n][2 * r + 1] = any ? o[m][n][2 * r + 1] * inverse : 0;
      }
      if (lane % 4 == 0 && row < call.queries) {
        call.lse[static_cast<std::int64_t>(place.head) * call.queries + row] =
            any ? (softmax.reference[m][r] + log2f(sum)) * kLn2 : __int_as_float(0xff800000);
      }
    }
  }
  // The warp's queries are not needed any more: their room takes the warp's results.
  store_rows<T, kWidth, kM>(query_tile, warp * 16 * kM, call.o.at<T>(b, h), call.o.row, warp_first,
                            call.queries, call.value_width, o);
}

template <class T, class Shape, bool kMasked>
void launch_forward(StreamRef stream, const FlashCall& call) {
  constexpr unsigned kBytes = Shape::bytes(kMasked);
  TileOrder order;
  order.heads = call.batch * call.heads;
  order.tiles = (call.queries + Shape::kQueries - 1) / Shape::kQueries;
  // Only causal tiles differ in length.
  order.section =
      call.causal
          ? section_heads(std::int64_t{call.keys} * 4 * Shape::kWidth / call.group, order.heads)
          : 1;
  const auto kernel = flash_forward_kernel<T, Shape, kMasked>;
  check_call(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
             "flash_forward");
  kernel<<<static_cast<unsigned>(order.heads * order.tiles), kFlashThreads, kBytes,
           stream_of(stream)>>>(call, order);
  check_launch("flash_forward");
}

// Masks need registers, so masked calls may have a shape of their own; with the same key tiles, for
// a row's bits follow from them.
template <class Shape, class MaskedShape>
void launch_forward(StreamRef stream, const FlashCall& call, DType dtype) {
  static_assert(Shape::kKeys == MaskedShape::kKeys && Shape::kWidth == MaskedShape::kWidth);
  const bool masked = call.masked();
  if (dtype == DType::bf16)
    masked ? launch_forward<bf16, MaskedShape, true>(stream, call)
           : launch_forward<bf16, Shape, false>(stream, call);
  else
    masked ? launch_forward<f16, MaskedShape, true>(stream, call)
           : launch_forward<f16, Shape, false>(stream, call);
}

}  // namespace fovea::cuda
