#include "kernels/flash.h"

#include "core/parallel.h"
#include "kernels/cpu/flash_tile.h"

namespace fovea::cpu::FOVEA_ISA {

namespace {

// Buffers of one query tile's forward pass; matrices are named by their layout.
template <class C>
struct ForwardTile {
  explicit ForwardTile(const AttentionSizes& a)
      : memory(kTile * (2 * a.width + 2 * a.value_width + 2 * kTile)),
        q_t(memory.data()),
        k(q_t + a.width * kTile),
        v(k + kTile * a.width),
        o_t(v + kTile * a.value_width),
        s(o_t + a.value_width * kTile),
        keep(s + kTile * kTile) {
    for (std::int64_t i = 0; i < kTile; ++i) {
      top[i] = -std::numeric_limits<C>::infinity();
      mass[i] = 0;
    }
    std::memset(static_cast<void*>(o_t), 0, static_cast<std::size_t>(s - o_t) * sizeof(C));
  }
  Scratch<C> memory;
  C *q_t, *k, *v, *o_t, *s, *keep;        // [D][i] [j][D] [j][Dv] [Dv][i] [j][i] [j][i]
  alignas(64) C top[kTile], mass[kTile];  // running maximum and sum of exponentials of each query
};

// Folds one tile of scores into the running softmax: s becomes probabilities relative to the new
// maximum.
template <class C>
void online_softmax(ForwardTile<C>& t, std::int64_t keys, std::int64_t value_width,
                    std::int64_t vectors, bool dropped) {
  using V = Vector<C>;
  const V none = every<C>(-std::numeric_limits<C>::infinity());
  for (std::int64_t n = 0; n < vectors * Lane<C>::width; n += Lane<C>::width) {
    const V before = load(t.top + n);
    V top = before;
    for (std::int64_t j = 0; j < keys; ++j)
      top = max(load(t.s + j * kTile + n), top);
    const V base = select(equal(top, none), every<C>(0), top);  // a row that saw nothing yet
    const V shrink = exp(before - base);
    V mass = every<C>(0);
    for (std::int64_t j = 0; j < keys; ++j) {
      C* at = t.s + j * kTile + n;
      const V p = exp(load(at) - base);
      mass += p;
      store(at, dropped ? p * load(t.keep + j * kTile + n) : p);
    }
    store(t.mass + n, fused(shrink, load(t.mass + n), mass));
    store(t.top + n, top);
    for (std::int64_t c = 0; c < value_width; ++c) {
      C* at = t.o_t + c * kTile + n;
      store(at, load(at) * shrink);
    }
  }
}

// o = o / mass and lse = top + log(mass); rows that saw no key: 0 and -inf.
template <class C>
void finish_rows(ForwardTile<C>& t, const TileTokens& queries, std::int64_t value_width, C* lse) {
  for (std::int64_t i = 0; i < queries.count; ++i) {
    const bool any = t.mass[i] != 0;
    lse[queries.position[i]] =
        any ? t.top[i] + std::log(t.mass[i]) : -std::numeric_limits<C>::infinity();
    if (!any) t.mass[i] = 1;  // o is 0 there
  }
  for (std::int64_t i = queries.count; i < kTile; ++i)
    t.mass[i] = 1;
  for (std::int64_t c = 0; c < value_width; ++c) {
    for (std::int64_t i = 0; i < kTile; ++i)
      t.o_t[c * kTile + i] /= t.mass[i];
  }
}

template <class T>
void forward_tile(const View& o, const View& lse, const View& q, const View& k, const View& v,
                  const CallTokens& tokens, std::int64_t b, std::int64_t h,
                  std::int64_t query_tile) {
  using C = Compute<T>;
  const AttentionSizes& a = tokens.a;
  const AttentionScores& how = tokens.how;
  ForwardTile<C> t(a);
  const TileTokens queries = tokens.queries(query_tile, b, h);
  const std::int64_t vectors = padded<C>(queries.count) / Lane<C>::width, kv = h / a.group;
  load_rows<T>(t.k, a.width, q, b, h, queries);  // the keys' room is free until the loop
  transpose_in(t.q_t, t.k, a.width, queries.count, a.width);
  tokens.walk.for_key_tiles(b, h, query_tile, [&](std::int64_t key_tile, const TileMask& mask) {
    const TileTokens keys = tokens.keys(key_tile, b, h);
    if (tokens.hidden(queries, keys, mask.kind)) return;
    load_rows<T>(t.k, a.width, k, b, kv, keys);
    load_rows<T>(t.v, a.value_width, v, b, kv, keys);
    tile_product<C>(t.s, kTile, {t.k, a.width, 1}, t.q_t, kTile, keys.count, a.width, vectors,
                    false);
    finish_scores<T>(t.s, how, a, queries, keys, mask, b, h, vectors);
    if (how.dropout > 0) dropout_tile(t.keep, how, a, queries, keys, b, h);
    online_softmax(t, keys.count, a.value_width, vectors, how.dropout > 0);
    tile_product<C>(t.o_t, kTile, {t.v, 1, a.value_width}, t.s, kTile, a.value_width, keys.count,
                    vectors, true);
  });
  finish_rows(t, queries, a.value_width, lse.ptr<C>() + (b * a.heads + h) * a.queries);
  store_transposed<T>(o, b, h, queries, t.o_t);
}

}  // namespace

void flash_forward(StreamRef stream, const View& o, const View& lse, const View& q, const View& k,
                   const View& v, const AttentionScores& scores) {
  for_float(q.dtype, [&]<class T>(T*) {
    const AttentionSizes a(q, k, v);
    const CallTokens tokens(scores, a);
    const std::int64_t tiles = tiles_of(a.queries);
    parallel_for(stream, a.batch * a.heads * tiles, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t at = begin; at < end; ++at) {
        const std::int64_t head = at / tiles;
        forward_tile<T>(o, lse, q, k, v, tokens, head / a.heads, head % a.heads, at % tiles);
      }
    });
  });
}

}  // namespace fovea::cpu::FOVEA_ISA
