#include "core/parallel.h"
#include "kernels/cpu/flash_tile.h"
#include "kernels/flash.h"

namespace fovea::cpu::FOVEA_ISA {

namespace {

// Everything one call works on.
struct BackwardCall {
  const AttentionGradients& d;
  const View &dout, &dlse, &q, &k, &v, &o, &lse;
  const AttentionScores& how;
  const AttentionSizes& a;
  CallTokens tokens;
};

// Buffers of one (sample, key/value head): gradients of all its keys and values, and one pair of
// tiles. Rows that end up as vector operands are padded to whole vectors.
template <class C>
struct BackwardTile {
  explicit BackwardTile(const AttentionSizes& a)
      : ld(padded<C>(a.width)),
        ldv(padded<C>(a.value_width)),
        memory(a.keys * (ld + ldv) +
               kTile * (2 * ld + 3 * ldv + 2 * a.width + a.value_width + 4 * kTile)),
        dk(memory.data()),
        dv(dk + a.keys * ld),
        q(dv + a.keys * ldv),
        k(q + kTile * ld),
        dout(k + kTile * ld),
        v(dout + kTile * ldv),
        o(v + kTile * ldv),
        q_t(o + kTile * ldv),
        dq_t(q_t + a.width * kTile),
        dout_t(dq_t + a.width * kTile),
        p(dout_t + a.value_width * kTile),
        ds(p + kTile * kTile),
        keep(ds + kTile * kTile),
        cap_slopes(keep + kTile * kTile) {
    // Sums start at zero, and so do the padding columns and the rows no tile fills.
    std::memset(static_cast<void*>(dk), 0, static_cast<std::size_t>(q_t - dk) * sizeof(C));
  }
  std::int64_t ld, ldv;
  Scratch<C> memory;
  C *dk, *dv, *q, *k, *dout, *v, *o, *q_t, *dq_t, *dout_t, *p, *ds, *keep, *cap_slopes;
  alignas(64) C lse[kTile], delta[kTile];
};

// delta_i = <dout_i, o_i> - dlse_i, and lse_i; both 0 where the row saw nothing, since all its
// scores are -inf there.
template <class T>
void row_statistics(const BackwardCall& x, BackwardTile<Compute<T>>& t, std::int64_t b,
                    std::int64_t h, const TileTokens& queries) {
  using C = Compute<T>;
  const std::int64_t head_row = (b * x.a.heads + h) * x.a.queries;
  for (std::int64_t i = 0; i < kTile; ++i) {
    t.lse[i] = t.delta[i] = 0;
    if (queries.valid[i] == 0) continue;
    const std::int64_t row = head_row + queries.position[i];
    const C lse = x.lse.ptr<C>()[row];
    if (lse == -std::numeric_limits<C>::infinity()) continue;
    t.lse[i] = lse;
    C sum = x.dlse ? -x.dlse.ptr<C>()[row] : C(0);
    for (std::int64_t c = 0; c < x.a.value_width; ++c)
      sum = std::fma(t.dout[i * t.ldv + c], t.o[i * t.ldv + c], sum);
    t.delta[i] = sum;
  }
}

// From scores (in p) and d probabilities (in ds) to probabilities as they met v, and d scores.
template <class C>
void score_gradient(BackwardTile<C>& t, std::int64_t keys, std::int64_t vectors, bool dropped) {
  using V = Vector<C>;
  for (std::int64_t j = 0; j < keys; ++j) {
    for (std::int64_t n = j * kTile; n < j * kTile + vectors * Lane<C>::width;
         n += Lane<C>::width) {
      const V p = exp(load(t.p + n) - load(t.lse + n - j * kTile));
      V dp = load(t.ds + n), met = p;
      if (dropped) {
        const V keep = load(t.keep + n);
        dp *= keep;
        met *= keep;
      }
      store(t.p + n, met);
      store(t.ds + n, p * (dp - load(t.delta + n - j * kTile)));
    }
  }
}

template <class C>
void add_bias_gradient(const View& dbias, const C* ds, std::int64_t b, std::int64_t h,
                       const TileTokens& queries, const TileTokens& keys) {
  C* to = dbias.ptr<C>() + (dbias.dim[0] == 1 ? 0 : b * dbias.stride[0]) +
          (dbias.dim[1] == 1 ? 0 : h * dbias.stride[1]);
  for (std::int64_t i = 0; i < queries.count; ++i) {
    C* row = to + queries.position[i] * dbias.stride[2];
    for (std::int64_t j = 0; j < keys.count; ++j)
      row[keys.position[j]] += ds[j * kTile + i];
  }
}

template <class T>
void backward_pair(const BackwardCall& x, BackwardTile<Compute<T>>& t, std::int64_t b,
                   std::int64_t h, const TileTokens& queries, const TileTokens& keys,
                   const TileMask& mask) {
  using C = Compute<T>;
  constexpr std::int64_t kLane = Lane<C>::width;
  const AttentionSizes& a = x.a;
  const std::int64_t vectors = padded<C>(queries.count) / kLane, kv = h / a.group;
  load_rows<T>(t.k, t.ld, x.k, b, kv, keys);
  load_rows<T>(t.v, t.ldv, x.v, b, kv, keys);
  tile_product<C>(t.p, kTile, {t.k, t.ld, 1}, t.q_t, kTile, keys.count, a.width, vectors, false);
  finish_scores<T>(t.p, x.how, a, queries, keys, mask, b, h, vectors, t.cap_slopes);
  tile_product<C>(t.ds, kTile, {t.v, t.ldv, 1}, t.dout_t, kTile, keys.count, a.value_width, vectors,
                  false);
  if (x.how.dropout > 0) dropout_tile(t.keep, x.how, a, queries, keys, b, h);
  score_gradient(t, keys.count, vectors, x.how.dropout > 0);
  if (x.d.dbias) add_bias_gradient(x.d.dbias, t.ds, b, h, queries, keys);
  if (x.d.dv) {
    tile_product<C>(t.dv + keys.first * t.ldv, t.ldv, {t.p, kTile, 1}, t.dout, t.ldv, keys.count,
                    queries.count, t.ldv / kLane, true);
  }
  if (!x.d.dk && !x.d.dq) return;
  const auto scale = every<C>(x.how.scale);
  const bool capped = x.how.softcap > 0;
  for (std::int64_t n = 0; n < keys.count * kTile; n += kLane) {
    const auto ds = load(t.ds + n) * scale;
    store(t.ds + n, capped ? ds * load(t.cap_slopes + n) : ds);
  }
  if (x.d.dk) {
    tile_product<C>(t.dk + keys.first * t.ld, t.ld, {t.ds, kTile, 1}, t.q, t.ld, keys.count,
                    queries.count, t.ld / kLane, true);
  }
  if (x.d.dq) {
    tile_product<C>(t.dq_t, kTile, {t.k, 1, t.ld}, t.ds, kTile, a.width, keys.count, vectors, true);
  }
}

template <class T>
void backward_queries(const BackwardCall& x, BackwardTile<Compute<T>>& t, std::int64_t b,
                      std::int64_t h, std::int64_t query_tile) {
  const AttentionSizes& a = x.a;
  const TileTokens queries = x.tokens.queries(query_tile, b, h);
  load_rows<T>(t.q, t.ld, x.q, b, h, queries);
  load_rows<T>(t.o, t.ldv, x.o, b, h, queries);
  if (x.dout) load_rows<T>(t.dout, t.ldv, x.dout, b, h, queries);
  transpose_in(t.q_t, t.q, t.ld, queries.count, a.width);
  transpose_in(t.dout_t, t.dout, t.ldv, queries.count, a.value_width);
  row_statistics<T>(x, t, b, h, queries);
  for (std::int64_t n = 0; n < a.width * kTile; ++n)
    t.dq_t[n] = 0;
  x.tokens.walk.for_key_tiles(b, h, query_tile, [&](std::int64_t key_tile, const TileMask& mask) {
    const TileTokens keys = x.tokens.keys(key_tile, b, h);
    if (!x.tokens.hidden(queries, keys, mask.kind))
      backward_pair<T>(x, t, b, h, queries, keys, mask);
  });
  if (x.d.dq) store_transposed<T>(x.d.dq, b, h, queries, t.dq_t);
}

// Rows of x [B,H,n,cols] from slots' rows.
template <class T>
void store_rows(const View& x, std::int64_t b, std::int64_t h, const Compute<T>* rows,
                std::int64_t ld, const std::int32_t* order) {
  T* head = x.ptr<T>() + b * x.stride[0] + h * x.stride[1];
  for (std::int64_t j = 0; j < x.dim[2]; ++j, rows += ld) {
    T* to = head + (order == nullptr ? j : order[j]) * x.stride[2];
    for (std::int64_t c = 0; c < x.dim[3]; ++c)
      store_one(to + c, rows[c]);
  }
}

// One (sample, key/value head): its group's heads in order, their query tiles in order, so that
// every sum over queries has one order.
template <class T>
void backward_head(const BackwardCall& x, std::int64_t b, std::int64_t kv) {
  BackwardTile<Compute<T>> t(x.a);
  for (std::int64_t h = kv * x.a.group; h < (kv + 1) * x.a.group; ++h) {
    for (std::int64_t tile = 0; tile < tiles_of(x.a.queries); ++tile)
      backward_queries<T>(x, t, b, h, tile);
  }
  const std::int32_t* order = x.tokens.walk.key_order(b, kv);
  if (x.d.dk) store_rows<T>(x.d.dk, b, kv, t.dk, t.ld, order);
  if (x.d.dv) store_rows<T>(x.d.dv, b, kv, t.dv, t.ldv, order);
}

// How many consecutive heads one worker takes: those that add to the same part of dbias.
std::int64_t heads_together(const AttentionSizes& a, const View& dbias) {
  if (!dbias) return 1;
  return (dbias.dim[0] == 1 ? a.batch : 1) * (dbias.dim[1] == 1 ? a.kv_heads : 1);
}

}  // namespace

void flash_backward(StreamRef stream, const AttentionGradients& gradients, const View& dout,
                    const View& dlse, const View& q, const View& k, const View& v, const View& o,
                    const View& lse, const AttentionScores& scores) {
  const AttentionSizes a(q, k, v);
  const BackwardCall x{gradients, dout, dlse, q, k, v, o, lse, scores, a, CallTokens(scores, a)};
  const View& dbias = gradients.dbias;
  for_float(q.dtype, [&]<class T>(T*) {
    if (dbias)
      std::memset(
          dbias.data, 0,
          static_cast<std::size_t>(dbias.dim[0] * dbias.dim[1] * dbias.dim[2] * dbias.dim[3]) *
              sizeof(Compute<T>));
    const bool head_major = dbias && dbias.dim[0] == 1 && dbias.dim[1] != 1;
    parallel_for(stream, x.a.batch * x.a.kv_heads, heads_together(x.a, dbias),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t at = begin; at < end; ++at) {
                     if (head_major)
                       backward_head<T>(x, at % x.a.batch, at / x.a.batch);
                     else
                       backward_head<T>(x, at / x.a.kv_heads, at % x.a.kv_heads);
                   }
                 });
  });
}

}  // namespace fovea::cpu::FOVEA_ISA
