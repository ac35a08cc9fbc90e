#pragma once
// query_gradients.cuh where values fit one tile of 16-bit numbers and states
// have one side.

#include "kernels/cuda/linear/narrow.cuh"
#include "kernels/cuda/linear/query_gradients.cuh"

namespace fovea::cuda {

constexpr int kQueryTiles = 3;  // a stage: state (first dout), up to two tiles of keys (values)
constexpr int kQueryStages = 3;

// dout and the pairs' gradients stay in registers; then the features go by, 64
// at a time. kKeyTiles as in narrow_outputs.
template <class T, int kKeyTiles, Access kAccess>
__device__ __forceinline__ void narrow_query_gradients(const LinearCall& call,
                                                       const QueryPlace& place, int first_key) {
  constexpr bool kPacked = kAccess != Access::loose;
  constexpr unsigned kTile = SquareTile<T>::kBytes, kStage = kQueryTiles * kTile;
  const unsigned base = aligned_shared_base(), z_base = base + kQueryStages * kStage;
  const PairMarks<kKeyTiles> marks(z_base + kQueryStages * kTileSide * 4);
  const LanePlace at;
  const int first = place.tile * kTileSide, b = place.b, h = place.h, s = h / call.group();
  const int t = first / call.chunk, slabs = call.padded_features / kTileSide;
  const std::int64_t state = call.state_of(b, s, t);
  const ScanSide& side = call.side[0];
  const T* const states =
      static_cast<const T*>(side.keys.states) + state * call.padded_features * kTileSide;
  const float* const z = side.keys.z + state * call.padded_features;
  const T* const state_part = padded_part(states);
  const T* const b_part =
      part_of<T>(call.b, call.b.at<const T>(b, call.key_head(s)), first_key * kTileSide);
  unsigned real_keys[room_for(kKeyTiles)];
  real_rows_of_tiles<kKeyTiles>(real_keys, first_key, call.keys,
                                [&](int j) { return call.key_tokens.is_valid(b, j); });
  // Step 0: dout and values; step 1 + slab: along the features.
  const auto bring = [&](int step) {
    const int place_of = step % kQueryStages, slab = step - 1;
    const unsigned to = base + static_cast<unsigned>(place_of) * kStage;
    if (step == 0) {
      bring_tile<T, kPacked>(
          to, call.dout, part_of<T>(call.dout, call.dout.at<const T>(b, h), first), 0,
          real_rows(first, call.queries, [&](int i) { return call.query_tokens.is_valid(b, i); }));
    } else if (slab < slabs) {
      bring_padded<T>(to, state_part + std::int64_t{slab} * kTileSide * kTileSide);
      bring_floats(z_base + static_cast<unsigned>(place_of) * 256, z + slab * kTileSide);
    }
#pragma unroll
    for (int k = 0; k < kKeyTiles; ++k) {
      const unsigned tile = to + static_cast<unsigned>(1 + k) * kTile;
      if (step == 0)
        bring_tile<T, kPacked>(tile, call.v,
                               part_of<T>(call.v, call.v.at<const T>(b, call.value_head(s)),
                                          (first_key + k) * kTileSide),
                               0, real_keys[k]);
      else if (slab < slabs)
        bring_tile<T, kPacked>(tile, call.b, b_part + k * kTileSide * call.b.row, slab * kTileSide,
                               real_keys[k]);
    }
    commit_copies();
  };
  bring(0);
  bring(1);
  const QueryMarks rows(call, b, s, first, at);
  marks.load(call, b, s, first_key * kTileSide);
  const float undo = side.keys.undo[state];
  float rho[2], delta[2], seen[2];
  load_gradient_rows(rho, delta, call, b, h, first, at);
  rows.seen(seen, side, edges_of(call, side, b, call.key_chunks, t).in);
  // Of what the state gives to a row: of the products with dout, and of its z.
  float of_state[2], of_z[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    of_state[r] = rho[r] * undo * seen[r];
    of_z[r] = rho[r] * seen[r] * delta[r];
  }

  HeldRows dout, pairs[room_for(kKeyTiles)];
  await_tiles<1>();
  bring(2);
  hold<T>(dout, base, at);
#pragma unroll
  for (int k = 0; k < kKeyTiles; ++k) {
    const unsigned counted =
        marks.counted(call, rows, at, k, call.causal && first_key + k == place.tile);
    float g[8][4] = {};
    begin_products();
    add_product<T, Lies::by_columns>(g, dout, base + static_cast<unsigned>(1 + k) * kTile, at);
    end_products(g, dout);
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      float by[4];
      marks.factors(by, rows, at, k, n);
#pragma unroll
      for (int e = 0; e < 4; ++e)
        g[n][e] = counts(counted, n, e) ? (g[n][e] - delta[e / 2]) * by[e] : 0.0f;
    }
    as_operands<T>(pairs[k], g);
  }

  for (int slab = 0; slab < slabs; ++slab) {
    const int place_of = (slab + 1) % kQueryStages;
    const unsigned from = base + static_cast<unsigned>(place_of) * kStage;
    await_tiles<1>();
    bring(slab + 3);
    float da[8][4] = {}, near[8][4] = {};
    begin_products();
    add_product<T, Lies::by_columns>(da, dout, from, at);
#pragma unroll
    for (int k = 0; k < kKeyTiles; ++k)
      add_product<T, Lies::by_rows>(near, pairs[k], from + static_cast<unsigned>(1 + k) * kTile,
                                    at);
    if constexpr (kKeyTiles > 0)
      end_products(da, near, dout, pairs);
    else
      end_products(da, dout);
    const float* const z_here =
        shared_pointer<float>(z_base + static_cast<unsigned>(place_of) * 256);
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float far = fmaf(of_state[e / 2], da[n][e], -of_z[e / 2] * z_here[at.column(n, e)]);
        da[n][e] = kKeyTiles > 0 ? fmaf(rho[e / 2], near[n][e], far) : far;
      }
    }
    store_gradients<kAccess>(call.da, b, h, first, slab * kTileSide, da, at, call.rounded, false);
  }
}

// Reads dout once, states, keys and values once but for what neighbours share
// (in L2), writes da once.
template <class T, Access kAccess>
__global__ void __launch_bounds__(kTileThreads, 3)
    narrow_query_gradients_kernel(const __grid_constant__ LinearCall call) {
  const QueryPlace place(call);
  const TileSpan span = key_tiles_of(call, place.tile);
  if (span.end - span.begin == 2)
    narrow_query_gradients<T, 2, kAccess>(call, place, span.begin);
  else if (span.end - span.begin == 1)
    narrow_query_gradients<T, 1, kAccess>(call, place, span.begin);
  else
    narrow_query_gradients<T, 0, kAccess>(call, place, span.begin);
}

template <class T, Access kAccess>
void launch_narrow_query_gradients(StreamRef stream, const LinearCall& call) {
  constexpr unsigned kBytes = kQueryStages * (kQueryTiles * SquareTile<T>::kBytes + kTileSide * 4) +
                              PairMarks<kMostTiles>::kBytes;
  const std::int64_t blocks = std::int64_t{call.batch} * call.heads * call.query_tiles();
  launch_shared(stream, "linear_attention query gradients",
                narrow_query_gradients_kernel<T, kAccess>, static_cast<unsigned>(blocks),
                kTileThreads, kBytes, call);
}
template <class T>
void launch_narrow_query_gradients(StreamRef stream, const LinearCall& call) {
  if (!is_packed(call.b, call.v, call.dout, call.da))
    return launch_narrow_query_gradients<T, Access::loose>(stream, call);
  if constexpr (__is_same(T, bf16)) {
    if (call.rounded) return launch_narrow_query_gradients<T, Access::rounded>(stream, call);
  }
  launch_narrow_query_gradients<T, Access::packed>(stream, call);
}

}  // namespace fovea::cuda
