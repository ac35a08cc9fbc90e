#pragma once
// key_gradients.cuh where values fit one tile of 16-bit numbers and states have one side.

#include "kernels/cuda/linear/key_gradients.cuh"
#include "kernels/cuda/linear/narrow.cuh"

namespace fovea::cuda {

constexpr int kKeyStages = 2;
constexpr int kKeyStageTiles = 4;  // keys (then z), state, up to two tiles of queries (dout)
constexpr unsigned kKeyMarkBytes = 3 * kMostTiles * kTileSide * sizeof(float);

// A tile of keys that kQueryTiles tiles of queries of its chunk see, the first at tile
// `first_query`. For each state and each query head on it two walks along the features: in the
// first the state gives to dv and pairs are made, turned over; then these give to dv, and in the
// second to db. kOne: a value head has one query head.
template <class T, int kQueryTiles, Access kAccess, bool kOne>
__device__ __forceinline__ void narrow_key_gradients(const LinearCall& call, int tile, int hv,
                                                     int b, int first_query) {
  constexpr bool kPacked = kAccess != Access::loose;
  constexpr unsigned kTile = SquareTile<T>::kBytes, kStage = kKeyStageTiles * kTile;
  constexpr int kQueries = room_for(kQueryTiles) * kTileSide;
  const unsigned base = aligned_shared_base(), v_tile = base + kKeyStages * kStage;
  // Of queries: log2 of rho, decayed up to the query; delta; segments.
  float *const early = shared_pointer<float>(v_tile + kTile), *const delta = early + kQueries;
  int* const segment = reinterpret_cast<int*>(delta + kQueries);
  const LanePlace at;
  const int first = tile * kTileSide, t = first / call.chunk;
  const int slabs = call.padded_features / kTileSide, group = kOne ? 1 : call.group();
  const int per_value = kOne ? 1 : call.states / call.value_heads,
            per_key = call.states / call.key_heads;
  const ScanSide& side = call.side[0];
  const bool wants_features = call.db.data != nullptr;
  const int first_state = hv * per_value, end_state = first_state + per_value;
  const auto is_key = [&](int j) { return call.key_tokens.is_valid(b, j); };
  const unsigned real_keys = real_rows(first, call.keys, is_key);
  unsigned real_queries[room_for(kQueryTiles)];
  real_rows_of_tiles<kQueryTiles>(real_queries, first_query, call.queries,
                                  [&](int i) { return call.query_tokens.is_valid(b, i); });
  // Where the next tiles come from, of a state and a query head on it, and where they go.
  const T *key_part = nullptr, *query_part = nullptr;
  const auto aim = [&](int s, int head) {
    key_part = part_of<T>(call.b, call.b.at<const T>(b, call.key_head(s)), first);
    query_part =
        part_of<T>(call.a, call.a.at<const T>(b, s * group + head), first_query * kTileSide);
  };
  unsigned to = base;
  // Of the first walk along the features, of dout, of the second walk.
  enum class Step { first, dout, second };
  const auto bring = [&](auto which, int s, int head, int slab) {
    constexpr Step kStep = decltype(which)::value;
    if constexpr (kStep == Step::first)
      bring_tile<T, kPacked>(to, call.b, key_part, slab * kTileSide, real_keys);
    if (kStep != Step::dout && head == 0) {
      const std::int64_t state = call.state_of(b, s, t) * call.padded_features + slab * kTileSide;
      bring_padded<T>(to + kTile,
                      padded_part(static_cast<const T*>(side.queries.states) + state * kTileSide));
      if constexpr (kStep == Step::second) bring_floats(to, side.queries.z + state);
    }
    if constexpr (kQueryTiles > 0) {
      const TileRows& rows = kStep == Step::dout ? call.dout : call.a;
      const T* part = query_part;
      if constexpr (kStep == Step::dout)
        part = part_of<T>(call.dout, call.dout.at<const T>(b, s * group + head),
                          first_query * kTileSide);
#pragma unroll
      for (int o = 0; o < kQueryTiles; ++o)
        bring_tile<T, kPacked>(to + static_cast<unsigned>(2 + o) * kTile, rows,
                               part + o * kTileSide * rows.row, slab * kTileSide, real_queries[o]);
    }
  };
  const auto brought = [&] {
    to = to == base ? base + kStage : base;
    commit_copies();
  };
  // What comes after a query head.
  const auto bring_next_head = [&](int s, int head) {
    if constexpr (!kOne) {
      const bool same = head + 1 < group;
      if (!same && s + 1 == end_state) return;
      aim(same ? s : s + 1, same ? head + 1 : 0);
      bring(Kind<Step, Step::first>{}, same ? s : s + 1, same ? head + 1 : 0, 0);
    }
  };
  bring_tile<T, kPacked>(v_tile, call.v, part_of<T>(call.v, call.v.at<const T>(b, hv), first), 0,
                         real_keys);
  aim(first_state, 0);
  bring(Kind<Step, Step::first>{}, first_state, 0, 0);
  brought();
  unsigned from = base;  // what is multiplied
  const auto next_stage = [&] { from = from == base ? base + kStage : base; };
  int own_segment[2] = {};
  bool exists[2] = {};
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int token = first + at.row(2 * r);
    exists[r] = token < call.keys && is_key(token);
    if (exists[r]) own_segment[r] = call.key_tokens.segment(b, token);
  }

  float dv[8][4] = {};
  for (int s = first_state; s < end_state; ++s) {
    const float top =
        kQueryTiles == 0 ? 1.0f : call.rows.top[call.chunk_of(b, s, t, call.query_chunks)];
    const float undo = side.queries.undo[call.state_of(b, s, t)];
    // Of the lane's keys: weight - decay up to it, log2; -inf for no key.
    float own[2] = {-__builtin_huge_valf(), -__builtin_huge_valf()}, reached[2] = {};
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
        const float weight = call.key_weight(key);
        const float own_gamma = call.decay == nullptr ? 0.0f : call.gamma[key];
        own[r] = (call.weight == nullptr ? 0.0f : call.weight[key]) - own_gamma;
        // What later queries give to a key, by their state.
        if (side.in == nullptr || own_segment[r] == edge)
          reached[r] = call.decay == nullptr ? weight : weight * exp2f(late - own_gamma);
      }
    }
    for (int head = 0; head < (kOne ? 1 : group); ++head) {
      const int h = s * group + head;
      float w[room_for(kQueryTiles)][8][4] = {}, sum[8][4] = {};
      for (int slab = 0; slab < slabs; ++slab, next_stage()) {
        await_tiles<kKeyStages - 2>();
        if (slab + 1 < slabs)
          bring(Kind<Step, Step::first>{}, s, head, slab + 1);
        else
          bring(Kind<Step, Step::dout>{}, s, head, 0);
        brought();
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
          // Of no query, and of none that divides by infinity, -inf: whatever the key has.
          early[i] = -__builtin_huge_valf();
          if (real) {
            early[i] = log2f(capped<T>(call.rows.rho[row] / top));
            if (call.decay != nullptr) early[i] += call.gamma[call.key_of(b, s) + token];
          }
          delta[i] = real ? call.rows.delta[row] : 0.0f;
          segment[i] = real ? call.query_tokens.segment(b, token) : 0;
        }
        end_products(sum, w);
      }
#pragma unroll
      for (int n = 0; n < 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e)
          sum[n][e] *= undo / top * reached[e / 2];
      }

      HeldRows pairs[room_for(kQueryTiles)];
      await_tiles<kKeyStages - 2>();
      if (wants_features)
        bring(Kind<Step, Step::second>{}, s, head, 0);
      else
        bring_next_head(s, head);
      brought();
      if constexpr (kQueryTiles > 0) {
        unsigned counted[kQueryTiles];
        HeldRows held[kQueryTiles];
        const auto by = [&](int o, int n, int e) {
          const float2 two =
              *reinterpret_cast<const float2*>(early + o * kTileSide + at.column(n, 0));
          return exp2_fast((e % 2 == 0 ? two.x : two.y) + own[e / 2]);
        };
#pragma unroll
        for (int o = 0; o < kQueryTiles; ++o) {
          counted[o] = counted_pairs<true>(
              call.causal && first_query + o == tile,
              call.key_tokens.segments == nullptr ? nullptr : segment + o * kTileSide, own_segment,
              at);
#pragma unroll
          for (int n = 0; n < 8; ++n) {
#pragma unroll
            for (int e = 0; e < 4; ++e)
              w[o][n][e] = counts(counted[o], n, e) ? within<T>(w[o][n][e] * by(o, n, e)) : 0.0f;
          }
          as_operands<T>(held[o], w[o]);
        }
#pragma unroll
        for (int o = 0; o < kQueryTiles; ++o) {
          float g[8][4] = {};
          begin_products();
          if (o == 0) {
#pragma unroll
            for (int i = 0; i < kQueryTiles; ++i)
              add_product<T, Lies::by_rows>(sum, held[i],
                                            from + static_cast<unsigned>(2 + i) * kTile, at);
          }
          add_product<T, Lies::by_rows, Lies::by_columns>(
              g, v_tile, from + static_cast<unsigned>(2 + o) * kTile, at);
          if (o == 0)
            end_products(g, sum, held);
          else
            end_products(g);
#pragma unroll
          for (int n = 0; n < 8; ++n) {
            const float2 deltas =
                *reinterpret_cast<const float2*>(delta + o * kTileSide + at.column(n, 0));
#pragma unroll
            for (int e = 0; e < 4; ++e)
              g[n][e] =
                  counts(counted[o], n, e)
                      ? within<T>((g[n][e] - (e % 2 == 0 ? deltas.x : deltas.y)) * by(o, n, e))
                      : 0.0f;
          }
          as_operands<T>(pairs[o], g);
        }
      }
#pragma unroll
      for (int n = 0; n < 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          sum[n][e] *= top;
          if (!kOne) dv[n][e] += sum[n][e];
        }
      }
      if (kOne && call.dv.data != nullptr) {  // nothing comes on top
        RoundedRows rounded;
        round_rows<T>(rounded, sum);
        store_rounded(call.dv, call.dv.at<T>(b, hv), first, 0, rounded, at);
      }
      next_stage();

      if (!wants_features) continue;
      const bool first_part = kOne || (head == 0 && (call.db_of_states || s % per_key == 0));
      for (int slab = 0; slab < slabs; ++slab, next_stage()) {
        await_tiles<kKeyStages - 2>();
        if (slab + 1 < slabs)
          bring(Kind<Step, Step::second>{}, s, head, slab + 1);
        else
          bring_next_head(s, head);
        brought();
        float db[8][4], near[8][4];
        begin_products();
        if (head == 0)
          add_product<T, Lies::by_rows, Lies::by_columns, From::zero>(db, v_tile, from + kTile, at);
        else
          clear(db);
        if constexpr (kQueryTiles > 0)
          add_product<T, Lies::by_rows, From::zero>(near, pairs[0], from + 2 * kTile, at);
        else
          clear(near);
#pragma unroll
        for (int o = 1; o < kQueryTiles; ++o)
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
        store_gradients<kAccess>(call.db, b, call.db_of_states ? s : call.key_head(s), first,
                                 slab * kTileSide, db, at, call.rounded, !first_part);
      }
    }
  }
  if (kOne || call.dv.data == nullptr) return;
  store_sums<T>(v_tile, call.dv, call.dv.at<T>(b, hv), first, 0, dv, at, false);
}

// Reads keys, queries and states of its chunk twice, the second time from L2, values and dout once;
// writes dv once, db once a query head.
template <class T, Access kAccess, bool kOne>
__global__ void __launch_bounds__(kTileThreads, 3)
    narrow_key_gradients_kernel(const __grid_constant__ LinearCall call) {
  const int tiles = (call.keys + kTileSide - 1) / kTileSide;
  const int hv = static_cast<int>(blockIdx.x) % call.value_heads,
            tile = static_cast<int>(blockIdx.x) / call.value_heads % tiles,
            b = static_cast<int>(blockIdx.x) / call.value_heads / tiles;
  const TileSpan span = query_tiles_of(call, tile);
  if (span.end - span.begin == 2)
    narrow_key_gradients<T, 2, kAccess, kOne>(call, tile, hv, b, span.begin);
  else if (span.end - span.begin == 1)
    narrow_key_gradients<T, 1, kAccess, kOne>(call, tile, hv, b, span.begin);
  else
    narrow_key_gradients<T, 0, kAccess, kOne>(call, tile, hv, b, span.begin);
}

template <class T, Access kAccess, bool kOne>
void launch_narrow_key_gradients(StreamRef stream, const LinearCall& call) {
  constexpr unsigned kBytes =
      (kKeyStages * kKeyStageTiles + 1) * SquareTile<T>::kBytes + kKeyMarkBytes;
  const std::int64_t blocks = std::int64_t{call.batch} * call.value_heads * call.key_tiles();
  launch_shared(stream, "linear_attention key gradients",
                narrow_key_gradients_kernel<T, kAccess, kOne>, static_cast<unsigned>(blocks),
                kTileThreads, kBytes, call);
}
template <class T>
void launch_narrow_key_gradients(StreamRef stream, const LinearCall& call) {
  if (!is_packed(call.a, call.b, call.v, call.dout, call.db, call.dv))
    return launch_narrow_key_gradients<T, Access::loose, false>(stream, call);
  if constexpr (__is_same(T, bf16)) {
    if (call.rounded) return launch_narrow_key_gradients<T, Access::rounded, true>(stream, call);
  }
  if (call.heads == call.value_heads)
    launch_narrow_key_gradients<T, Access::packed, true>(stream, call);
  else
    launch_narrow_key_gradients<T, Access::packed, false>(stream, call);
}

}  // namespace fovea::cuda
