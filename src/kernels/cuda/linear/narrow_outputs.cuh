#pragma once
// outputs.cuh where values fit one tile of 16-bit numbers and states have one
// side.

#include "kernels/cuda/linear/narrow.cuh"
#include "kernels/cuda/linear/outputs.cuh"

namespace fovea::cuda {

constexpr int kOutputStages = 2;
constexpr int kOutputTiles = 4;  // a stage: queries, state, up to two tiles of keys

// A tile of queries whose chunk has kKeyTiles of keys up to it, the first at
// tile `first_key`. One walk along the features makes the state's part and all
// pairs; operands of the next 64 features come in meanwhile.
template <class T, int kKeyTiles, bool kPacked>
__device__ __forceinline__ void narrow_outputs(const LinearCall& call, const QueryPlace& place,
                                               int first_key) {
  constexpr unsigned kTile = SquareTile<T>::kBytes, kStage = kOutputTiles * kTile;
  const unsigned base = aligned_shared_base(), z_base = base + kOutputStages * kStage;
  const PairMarks<kKeyTiles> marks(z_base + kOutputStages * kTileSide * 4);
  const LanePlace at;
  const int first = place.tile * kTileSide, b = place.b, h = place.h, s = h / call.group();
  const int t = first / call.chunk, slabs = call.padded_features / kTileSide;
  const std::int64_t state = call.state_of(b, s, t);
  const ScanSide& side = call.side[0];
  const T* const states =
      static_cast<const T*>(side.keys.states) + state * call.padded_features * kTileSide;
  const T* const z = static_cast<const T*>(side.keys.z_parts) + 2 * state * call.padded_features;
  const T* const state_part = padded_part(states);
  const T* const a_part = part_of<T>(call.a, call.a.at<const T>(b, h), first);
  const T* const b_part =
      part_of<T>(call.b, call.b.at<const T>(b, call.key_head(s)), first_key * kTileSide);
  const unsigned real_queries =
      real_rows(first, call.queries, [&](int i) { return call.query_tokens.is_valid(b, i); });
  unsigned real_keys[room_for(kKeyTiles)];
  real_rows_of_tiles<kKeyTiles>(real_keys, first_key, call.keys,
                                [&](int j) { return call.key_tokens.is_valid(b, j); });
  const auto stage_of = [&](int step) {
    return base + static_cast<unsigned>(step % kOutputStages) * kStage;
  };
  // Steps 0 to slabs - 1: along the features; the last one: values.
  const auto bring = [&](int step) {
    const unsigned to = stage_of(step);
    if (step < slabs) {
      bring_tile<T, kPacked>(to, call.a, a_part, step * kTileSide, real_queries);
      bring_padded<T>(to + kTile, state_part + std::int64_t{step} * kTileSide * kTileSide);
      bring_floats(z_base + static_cast<unsigned>(step % kOutputStages) * kTileSide * 4,
                   z + step * (2 * kTileSide));
    }
#pragma unroll
    for (int o = 0; o < kKeyTiles; ++o) {
      const unsigned tile = to + static_cast<unsigned>(2 + o) * kTile;
      if (step < slabs)
        bring_tile<T, kPacked>(tile, call.b, b_part + o * kTileSide * call.b.row, step * kTileSide,
                               real_keys[o]);
      else if (step == slabs)
        bring_tile<T, kPacked>(tile, call.v,
                               part_of<T>(call.v, call.v.at<const T>(b, call.value_head(s)),
                                          (first_key + o) * kTileSide),
                               0, real_keys[o]);
    }
    commit_copies();
  };
#pragma unroll
  for (int step = 0; step < kOutputStages - 1; ++step)
    bring(step);
  const QueryMarks rows(call, b, s, first, at);
  marks.load(call, b, s, first_key * kTileSide);
  const float undo = side.keys.undo[state];

  float o[8][4] = {}, w[room_for(kKeyTiles)][8][4] = {}, columns[4] = {};
  for (int slab = 0; slab < slabs; ++slab) {
    await_tiles<kOutputStages - 2>();
    const unsigned from = stage_of(slab);
    begin_products();
    add_product<T, Lies::by_rows, Lies::by_rows>(o, from, from + kTile, at);
#pragma unroll
    for (int k = 0; k < kKeyTiles; ++k)
      add_product<T, Lies::by_rows, Lies::by_columns>(
          w[k], from, from + static_cast<unsigned>(2 + k) * kTile, at);
    bring(slab + kOutputStages - 1);
    add_column<T, Lies::by_rows>(columns, from,
                                 z_base + static_cast<unsigned>(slab % kOutputStages) * 256, at);
    end_products(o, w);
  }
  float seen[2], mass[2], column[2];
  column_of(column, columns, at);
  rows.seen(seen, side, edges_of(call, side, b, call.key_chunks, t).in);
#pragma unroll
  for (int r = 0; r < 2; ++r)
    mass[r] = column[r] * (undo * seen[r]);
#pragma unroll
  for (int n = 0; n < 8; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e)
      o[n][e] *= undo * seen[e / 2];
  }
  if constexpr (kKeyTiles > 0) {
    HeldRows held[kKeyTiles];
#pragma unroll
    for (int k = 0; k < kKeyTiles; ++k) {
      const unsigned pairs =
          marks.counted(call, rows, at, k, call.causal && first_key + k == place.tile);
      // Rounded before they are added up, so that numerator and denominator are of the same
      // weights.
      float sum[2] = {};
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        float by[4];
        marks.factors(by, rows, at, k, n);
#pragma unroll
        for (int e = 0; e < 4; ++e)
          by[e] = counts(pairs, n, e) ? w[k][n][e] * by[e] : 0.0f;
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          // As as_operands() has them.
          const unsigned both = pack<T>(by[2 * r], by[2 * r + 1]);
          held[k][n / 2][n % 2 * 2 + r] = both;
          const float2 two = unpack<T>(both);
          sum[r] += two.x;
          sum[r] += two.y;
        }
      }
#pragma unroll
      for (int r = 0; r < 2; ++r)
        mass[r] += quad_sum(sum[r]);
    }
    await_tiles<kOutputStages - 2>();
    begin_products();
#pragma unroll
    for (int k = 0; k < kKeyTiles; ++k)
      add_product<T, Lies::by_rows>(o, held[k],
                                    stage_of(slabs) + static_cast<unsigned>(2 + k) * kTile, at);
    end_products(o, held);
  }
  float inverse[2];
  finish_rows(inverse, call, b, s, h, first, mass, at);
  if constexpr (kPacked) {
    RoundedRows rounded;
    scale_each_row(o, inverse);
    round_rows<T>(rounded, o);
    store_rounded(call.o, call.o.at<T>(b, h), first, 0, rounded, at);
    if (call.rounding.data == nullptr) return;
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float2 kept = unpack<T>(rounded[n][r]);
        rounded[n][r] = pack<T>(o[n][2 * r] - kept.x, o[n][2 * r + 1] - kept.y);
      }
    }
    store_rounded(call.rounding, call.rounding.at<T>(b, h), first, 0, rounded, at);
  } else {
    store_outputs<T>(call, b, h, first, 0, o, inverse, stage_of(slabs), at);
  }
}

// Reads queries, keys of the chunk, values and states once each but for what
// neighbours share (in L2), writes o, its rounding and den once.
template <class T, bool kPacked>
__global__ void __launch_bounds__(kTileThreads, 3)
    narrow_outputs_kernel(const __grid_constant__ LinearCall call) {
  const QueryPlace place(call);
  const TileSpan span = key_tiles_of(call, place.tile);
  if (span.end - span.begin == 2)
    narrow_outputs<T, 2, kPacked>(call, place, span.begin);
  else if (span.end - span.begin == 1)
    narrow_outputs<T, 1, kPacked>(call, place, span.begin);
  else
    narrow_outputs<T, 0, kPacked>(call, place, span.begin);
}

template <class T, bool kPacked>
void launch_narrow_outputs(StreamRef stream, const LinearCall& call) {
  constexpr unsigned kBytes =
      kOutputStages * (kOutputTiles * SquareTile<T>::kBytes + kTileSide * 4) +
      PairMarks<kMostTiles>::kBytes;
  const std::int64_t blocks = std::int64_t{call.batch} * call.heads * call.query_tiles();
  launch_shared(stream, "linear_attention outputs", narrow_outputs_kernel<T, kPacked>,
                static_cast<unsigned>(blocks), kTileThreads, kBytes, call);
}
template <class T>
void launch_narrow_outputs(StreamRef stream, const LinearCall& call) {
  if (is_packed(call.a, call.b, call.v, call.o, call.rounding))
    launch_narrow_outputs<T, true>(stream, call);
  else
    launch_narrow_outputs<T, false>(stream, call);
}

}  // namespace fovea::cuda
