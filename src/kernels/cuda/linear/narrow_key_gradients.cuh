#pragma once
// key_gradients.cuh where values fit one tile of 16-bit numbers and states have one side.

#include "kernels/cuda/linear/key_gradients.cuh"
#include "kernels/cuda/linear/narrow.cuh"

namespace fovea::cuda {

constexpr int kKeyStages = 2;
constexpr int kKeyStageTiles = 4;  // keys (then z), state, up to two tiles of queries (dout)
constexpr unsigned kKeyMarkBytes = 4 * kMostTiles * kTileSide * sizeof(float);

// A tile of keys that kQueryTiles tiles of queries of its chunk see, the first at tile
// `first_query`. For each state and each query head on it two walks along the features: in the
// first the state gives to dv and pairs are made, turned over; then these give to dv, and in the
// second to db.
template <class T, int kQueryTiles>
__device__ __forceinline__ void narrow_key_gradients(const LinearCall& call, int tile, int hv,
                                                     int b, int first_query) {
  constexpr unsigned kTile = SquareTile<T>::kBytes, kStage = kKeyStageTiles * kTile;
  constexpr int kQueries = room_for(kQueryTiles) * kTileSide;
  const unsigned base = aligned_shared_base(), v_tile = base + kKeyStages * kStage;
  float *const rho = shared_pointer<float>(v_tile + kTile), *const delta = rho + kQueries,
               *const gamma = delta + kQueries;
  int* const segment = reinterpret_cast<int*>(gamma + kQueries);
  const LanePlace at;
  const int first = tile * kTileSide, t = first / call.chunk;
  const int slabs = call.padded_features / kTileSide, group = call.group();
  const int per_value = call.states / call.value_heads, per_key = call.states / call.key_heads;
  const ScanSide& side = call.side[0];
  const bool wants_features = call.db.data != nullptr;
  const int per_head = wants_features ? 2 * slabs + 1 : slabs + 1;
  const int steps = per_value * group * per_head;
  const auto is_key = [&](int j) { return call.key_tokens.is_valid(b, j); };
  const unsigned real_keys = real_rows(first, call.keys, is_key);
  unsigned real_queries[room_for(kQueryTiles)];
#pragma unroll
  for (int o = 0; o < kQueryTiles; ++o)
    real_queries[o] = real_rows((first_query + o) * kTileSide, call.queries,
                                [&](int i) { return call.query_tokens.is_valid(b, i); });
  const auto stage_of = [&](int step) {
    return base + static_cast<unsigned>(step % kKeyStages) * kStage;
  };
  // Of a query head: steps 0 to slabs - 1 and slabs + 1 to 2 slabs go along the features, the one
  // between is dout's.
  const auto bring = [&](int step) {
    if (step < steps) {
      const int which = step / per_head, phase = step % per_head;
      const int s = hv * per_value + which / group, h = hv * per_value * group + which;
      const int slab = phase < slabs ? phase : phase - slabs - 1;
      const unsigned to = stage_of(step);
      const std::int64_t state = call.state_of(b, s, t);
      if (phase < slabs)
        bring_tile<T>(to, call.b, call.b.at<const T>(b, call.key_head(s)), first, slab * kTileSide,
                      real_keys);
      if (phase != slabs && which % group == 0) {
        bring_padded<T>(to + kTile,
                        static_cast<const T*>(side.queries.states) +
                            (state * call.padded_features + slab * kTileSide) * kTileSide,
                        kTileSide);
        if (phase > slabs)
          bring_floats(to, side.queries.z + state * call.padded_features + slab * kTileSide);
      }
#pragma unroll
      for (int o = 0; o < kQueryTiles; ++o) {
        const unsigned query_tile = to + static_cast<unsigned>(2 + o) * kTile;
        const int query = (first_query + o) * kTileSide;
        if (phase == slabs)
          bring_tile<T>(query_tile, call.dout, call.dout.at<const T>(b, h), query, 0,
                        real_queries[o]);
        else
          bring_tile<T>(query_tile, call.a, call.a.at<const T>(b, h), query, slab * kTileSide,
                        real_queries[o]);
      }
    }
    commit_copies();
  };
  bring_tile<T>(v_tile, call.v, call.v.at<const T>(b, hv), first, 0, real_keys);
#pragma unroll
  for (int i = 0; i < kKeyStages - 1; ++i)
    bring(i);
  int own_segment[2] = {};
  bool exists[2] = {};
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int token = first + at.row(2 * r);
    exists[r] = token < call.keys && is_key(token);
    if (exists[r]) own_segment[r] = call.key_tokens.segment(b, token);
  }

  float dv[8][4] = {};
  int step = 0;
  for (int s = hv * per_value; s < (hv + 1) * per_value; ++s) {
    const float top =
        kQueryTiles == 0 ? 1.0f : call.rows.top[call.chunk_of(b, s, t, call.query_chunks)];
    const float undo = side.queries.undo[call.state_of(b, s, t)];
    float weight[2] = {}, own_gamma[2] = {}, reached[2] = {};
    {
      const int edge = edges_of(call, side, b, call.key_chunks, t).out;
      const float late =
          call.decay == nullptr
              ? 0.0f
              : call.gamma[call.key_of(b, s) + min(t * call.chunk + call.chunk, call.keys) - 1];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        if (!exists[r]) continue;
        const std::int64_t key = call.key_of(b, s) + first + at.row(2 * r);
        weight[r] = call.key_weight(key);
        if (call.decay != nullptr) own_gamma[r] = call.gamma[key];
        // What later queries give to a key, by their state.
        if (side.in == nullptr || own_segment[r] == edge)
          reached[r] = call.decay == nullptr ? weight[r] : weight[r] * exp2f(late - own_gamma[r]);
      }
    }
    for (int head = 0; head < group; ++head) {
      const int h = s * group + head;
      float w[room_for(kQueryTiles)][8][4] = {}, sum[8][4] = {};
      for (int slab = 0; slab < slabs; ++slab, ++step) {
        await_tiles<kKeyStages - 2>();
        bring(step + kKeyStages - 1);
        const unsigned from = stage_of(step);
        begin_products();
        if (head == 0) add_product<T, Lies::by_rows, Lies::by_rows>(sum, from, from + kTile, at);
#pragma unroll
        for (int o = 0; o < kQueryTiles; ++o)
          add_product<T, Lies::by_rows, Lies::by_columns>(
              w[o], from, from + static_cast<unsigned>(2 + o) * kTile, at);
        if (slab == 0 && kQueryTiles > 0 && threadIdx.x < kQueries) {
          const int i = static_cast<int>(threadIdx.x), token = first_query * kTileSide + i;
          const bool real = token < call.queries;
          const std::int64_t row = call.row_of(b, h) + token;
          rho[i] = real ? capped<T>(call.rows.rho[row] / top) : 0.0f;
          delta[i] = real ? call.rows.delta[row] : 0.0f;
          gamma[i] = real && call.decay != nullptr ? call.gamma[call.key_of(b, s) + token] : 0.0f;
          segment[i] = real ? call.query_tokens.segment(b, token) : 0;
        }
        end_products(sum, w);
      }
#pragma unroll
      for (int n = 0; n < 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e)
          dv[n][e] = fmaf(sum[n][e], undo * reached[e / 2], dv[n][e]);
      }

      HeldRows pairs[room_for(kQueryTiles)];
      await_tiles<kKeyStages - 2>();
      bring(step + kKeyStages - 1);
      if constexpr (kQueryTiles > 0) {
        const unsigned from = stage_of(step);
        float part[8][4] = {};
#pragma unroll
        for (int o = 0; o < kQueryTiles; ++o) {
          const unsigned dout_tile = from + static_cast<unsigned>(2 + o) * kTile;
          const unsigned counted = counted_pairs<true>(
              call.causal && first_query + o == tile,
              call.key_tokens.segments == nullptr ? nullptr : segment + o * kTileSide, own_segment,
              at);
          float g[8][4] = {};
          begin_products();
          add_product<T, Lies::by_rows, Lies::by_columns>(g, v_tile, dout_tile, at);
          end_products(g);
#pragma unroll
          for (int n = 0; n < 8; ++n) {
            const int i = o * kTileSide + at.column(n, 0);
            const float2 rhos = *reinterpret_cast<const float2*>(rho + i),
                         deltas = *reinterpret_cast<const float2*>(delta + i),
                         gammas = *reinterpret_cast<const float2*>(gamma + i);
#pragma unroll
            for (int e = 0; e < 4; ++e) {
              const int r = e / 2;
              const float to = weight[r] * (e % 2 == 0 ? rhos.x : rhos.y);
              // Zero for queries past the end: they have no decay, and 2^-own_gamma may be
              // infinite.
              const bool seen = counts(counted, n, e) && to != 0;
              const float by = to * exp2_fast((e % 2 == 0 ? gammas.x : gammas.y) - own_gamma[r]);
              w[o][n][e] = seen ? within<T>(w[o][n][e] * by) : 0.0f;
              g[n][e] =
                  seen ? within<T>((g[n][e] - (e % 2 == 0 ? deltas.x : deltas.y)) * by) : 0.0f;
            }
          }
          HeldRows held;
          hold<T>(held, w[o]);
          hold<T>(pairs[o], g);
          begin_products();
          add_product<T, Lies::by_rows>(part, held, dout_tile, at);
          end_products(part, held);
        }
#pragma unroll
        for (int n = 0; n < 8; ++n) {
#pragma unroll
          for (int e = 0; e < 4; ++e)
            dv[n][e] = fmaf(part[n][e], top, dv[n][e]);
        }
      }
      ++step;

      if (!wants_features) continue;
      const bool first_part = head == 0 && (call.db_of_states || s % per_key == 0);
      float* const db_rows = call.db.at<float>(b, call.db_of_states ? s : call.key_head(s));
      for (int slab = 0; slab < slabs; ++slab, ++step) {
        await_tiles<kKeyStages - 2>();
        bring(step + kKeyStages - 1);
        const unsigned from = stage_of(step);
        float db[8][4] = {}, near[8][4] = {};
        begin_products();
        if (head == 0)
          add_product<T, Lies::by_rows, Lies::by_columns>(db, v_tile, from + kTile, at);
#pragma unroll
        for (int o = 0; o < kQueryTiles; ++o)
          add_product<T, Lies::by_rows>(near, pairs[o], from + static_cast<unsigned>(2 + o) * kTile,
                                        at);
        if constexpr (kQueryTiles > 0)
          end_products(db, near, pairs);
        else
          end_products(db);
        const float* const z = shared_pointer<float>(from);
#pragma unroll
        for (int n = 0; n < 8; ++n) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const float far =
                head == 0 ? reached[e / 2] * (undo * db[n][e] + z[at.column(n, e)]) : 0.0f;
            db[n][e] = fmaf(near[n][e], top, far);
          }
        }
        store_floats(call.db, db_rows, first, slab * kTileSide, db, at, !first_part);
      }
    }
  }
  if (call.dv.data == nullptr) return;
  store_sums<T>(v_tile, call.dv, call.dv.at<T>(b, hv), first, 0, dv, at, false);
}

// Reads keys, queries and states of its chunk twice, the second time from L2, values and dout once;
// writes dv once, db once a query head.
template <class T>
__global__ void __launch_bounds__(kTileThreads, 3)
    narrow_key_gradients_kernel(const __grid_constant__ LinearCall call) {
  const int tiles = (call.keys + kTileSide - 1) / kTileSide;
  const int hv = static_cast<int>(blockIdx.x) % call.value_heads,
            tile = static_cast<int>(blockIdx.x) / call.value_heads % tiles,
            b = static_cast<int>(blockIdx.x) / call.value_heads / tiles;
  const TileSpan span = query_tiles_of(call, tile);
  if (span.end - span.begin == 2)
    narrow_key_gradients<T, 2>(call, tile, hv, b, span.begin);
  else if (span.end - span.begin == 1)
    narrow_key_gradients<T, 1>(call, tile, hv, b, span.begin);
  else
    narrow_key_gradients<T, 0>(call, tile, hv, b, span.begin);
}

template <class T>
void launch_narrow_key_gradients(StreamRef stream, const LinearCall& call) {
  constexpr unsigned kBytes =
      (kKeyStages * kKeyStageTiles + 1) * SquareTile<T>::kBytes + kKeyMarkBytes;
  allow_shared(narrow_key_gradients_kernel<T>, kBytes);
  const std::int64_t blocks =
      std::int64_t{call.batch} * call.value_heads * ((call.keys + kTileSide - 1) / kTileSide);
  narrow_key_gradients_kernel<T>
      <<<static_cast<unsigned>(blocks), kTileThreads, kBytes, stream_of(stream)>>>(call);
  check_launch("linear_attention key gradients");
}

}  // namespace fovea::cuda
