#pragma once
// One chunk of linear attention, as forward and backward share it. Products that end in queries
// stand transposed, [.][i], so that vectors run along queries; states are [m][Dv + 1], the last
// column for the denominator, and features and values are padded to whole vectors.

#include <cmath>
#include <cstring>
#include <vector>

#include "core/parallel.h"
#include "kernels/cpu/tile.h"
#include "kernels/cpu/token_runs.h"
#include "kernels/linear_attention.h"

namespace fovea::cpu::FOVEA_ISA {

// 2^x, exact for whole x; 0 below -150. x = n + r; 2^r is e^(r ln 2).
inline Floats exp2(Floats x) {
  const Floats clamped = min(max(x, splat(-152.0f)), splat(128.0f));
  const Floats magic = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const Floats shifted = clamped + magic;
  const Floats r = (clamped - (shifted - magic)) * splat(0.693147181f);
  const Ints whole = reinterpret_cast<Ints>(shifted) - reinterpret_cast<Ints>(magic);
  return scaled_exp(r, whole);
}
inline float exp2(float x) {
  return exp2(splat(x))[0];
}
inline double exp2(double x) {
  return std::exp2(x);
}

// The sizes of one call.
struct LinearSizes {
  std::int64_t batch, heads, states, key_heads, value_heads, queries, keys, features, values;
  std::int64_t sums;  // columns of a state
  std::int64_t chunk;

  LinearSizes(const View& a, const View& b, const View& v, const LinearSums& how)
      : batch(a.dim[0]),
        heads(a.dim[1]),
        states(how.decay    ? how.decay.dim[1]
               : how.weight ? how.weight.dim[1]
                            : b.dim[1]),
        key_heads(b.dim[1]),
        value_heads(v.dim[1]),
        queries(a.dim[2]),
        keys(b.dim[2]),
        features(a.dim[3]),
        values(v.dim[3]),
        sums(values + 1),
        chunk(how.chunk) {}
  // What state s reads, and the query heads that read it.
  std::int64_t key_head(std::int64_t s) const { return s / (states / key_heads); }
  std::int64_t group() const { return heads / states; }
};

// Tokens that see each other: a segment, or everything.
struct SegmentRun {
  std::int64_t first_query = 0, queries = 0, first_key = 0, keys = 0;
  std::int32_t id = 0;  // of the keys' segment
};

// All queries and all keys of a sample, matched by segment.
inline std::vector<SegmentRun> segment_runs(const LinearSums& how, const LinearSizes& a,
                                            std::int64_t b) {
  if (!how.query_segments) return {{0, a.queries, 0, a.keys}};
  const std::vector<TokenRun> keys = token_runs(how.key_segments, how.key_valid, b, a.keys);
  std::vector<SegmentRun> out;
  if (how.causal) {
    for (const TokenRun& run : keys)
      out.push_back({run.first, run.count, run.first, run.count, run.id});
    return out;
  }
  for (const TokenRun& run : token_runs(how.query_segments, how.query_valid, b, a.queries)) {
    SegmentRun pair{run.first, run.count, 0, 0, run.id};
    for (const TokenRun& key_run : keys) {
      if (key_run.id != run.id) continue;
      pair.first_key = key_run.first;
      pair.keys = key_run.count;
      break;
    }
    out.push_back(pair);
  }
  return out;
}

// Rows [first, first + n) of x [B,H,.,cols], converted, with zeros behind the last column; invalid
// rows become zero, so that what they hold cannot reach anything.
template <class T>
void load_tokens(Compute<T>* to, std::int64_t ld, const View& x, std::int64_t b, std::int64_t h,
                 std::int64_t first, std::int64_t n, const View& valid) {
  using C = Compute<T>;
  const std::int64_t cols = x.dim[3];
  const T* rows = x.ptr<T>() + b * x.stride[0] + h * x.stride[1];
  for (std::int64_t t = 0; t < n; ++t, to += ld) {
    std::int64_t c = 0;
    if (is_valid(valid, b, first + t)) {
      const T* from = rows + (first + t) * x.stride[2];
      for (; c + Lane<C>::width <= cols; c += Lane<C>::width)
        store(to + c, load(from + c));
      for (; c < cols; ++c)
        to[c] = load_one(from + c);
    }
    for (; c < ld; ++c)
      to[c] = 0;
  }
}

// Whether a token of a run is a valid query that sees its keys: it may be of another segment.
inline bool is_query_of(const LinearSums& how, std::int64_t b, std::int64_t token,
                        const SegmentRun& run) {
  if (!is_valid(how.query_valid, b, token)) return false;
  const View& ids = how.query_segments;
  return !how.causal || ids.data == how.key_segments.data ||
         ids.ptr<std::int32_t>()[b * ids.stride[0] + token * ids.stride[1]] == run.id;
}

// Rows of queries among the tokens of a run, zero where they see none of its keys.
template <class T>
void load_queries_of(Compute<T>* to, std::int64_t ld, const View& x, std::int64_t b, std::int64_t h,
                     std::int64_t first, std::int64_t n, const LinearSums& how,
                     const SegmentRun& run) {
  load_tokens<T>(to, ld, x, b, h, first, n, how.query_valid);
  for (std::int64_t t = 0; t < n; ++t) {
    if (!is_query_of(how, b, first + t, run))
      std::memset(static_cast<void*>(to + t * ld), 0, static_cast<std::size_t>(ld) * sizeof(*to));
  }
}

// to[c][t] = rows[t][c] for t < n, zeros behind, `lanes` columns.
template <class C>
void transpose_tokens(C* to, std::int64_t lanes, const C* rows, std::int64_t ld, std::int64_t n,
                      std::int64_t cols) {
  for (std::int64_t c = 0; c < cols; ++c) {
    for (std::int64_t t = 0; t < n; ++t)
      to[c * lanes + t] = rows[t * ld + c];
    for (std::int64_t t = n; t < lanes; ++t)
      to[c * lanes + t] = 0;
  }
}

// to = from * factor, n elements, a whole number of vectors.
template <class C>
void scale_row(C* to, const C* from, C factor, std::int64_t n) {
  const auto by = every<C>(static_cast<double>(factor));
  for (std::int64_t i = 0; i < n; i += Lane<C>::width)
    store(to + i, load(from + i) * by);
}

// How the keys of one chunk are weighed. gamma_i = sum of decay over the chunk's tokens up to i.
template <class C>
struct ChunkScale {
  bool decays = false, weighted = false;
  C keep = 1;                   // 2^gamma of the last token
  C *gamma, *row, *key, *pair;  // [i]; 2^gamma_i; 2^(gamma_last - gamma_j); [j][i] 2^(g_i - g_j)
  C* weight;                    // [j]: 2^weight_j

  static std::int64_t room(std::int64_t lanes) { return lanes * (4 + lanes); }
  ChunkScale(C* memory, std::int64_t lanes)
      : gamma(memory),
        row(gamma + lanes),
        key(row + lanes),
        pair(key + lanes + lanes),
        weight(key + lanes) {}

  void read(const LinearSums& how, std::int64_t b, std::int64_t s, std::int64_t first,
            std::int64_t n, std::int64_t lanes) {
    using V = Vector<C>;
    decays = bool(how.decay);
    weighted = bool(how.weight);
    const auto at = [&](const View& x, std::int64_t t) {
      return x.ptr<C>()[(b * x.dim[1] + s) * x.dim[2] + first + t];
    };
    for (std::int64_t t = 0; weighted && t < n; ++t)
      weight[t] = is_valid(how.key_valid, b, first + t) ? exp2(at(how.weight, t)) : C(0);
    if (!decays) return;
    C sum = 0;
    for (std::int64_t t = 0; t < lanes; ++t) {
      if (t < n && is_valid(how.key_valid, b, first + t)) sum += at(how.decay, t);
      gamma[t] = sum;
    }
    keep = exp2(sum);
    for (std::int64_t t = 0; t < lanes; t += Lane<C>::width) {
      store(row + t, exp2(load(gamma + t)));
      store(key + t, exp2(every<C>(static_cast<double>(sum)) - load(gamma + t)));
    }
    for (std::int64_t j = 0; j < n; ++j) {
      const V from = every<C>(static_cast<double>(gamma[j]));
      for (std::int64_t t = j / Lane<C>::width * Lane<C>::width; t < lanes; t += Lane<C>::width)
        store(pair + j * lanes + t, exp2(load(gamma + t) - from));
    }
  }

  // Products [j][i]: decayed where i >= j, zero elsewhere.
  void mask(C* products, std::int64_t n, std::int64_t lanes) const {
    for (std::int64_t j = 0; j < n; ++j) {
      C* to = products + j * lanes;
      for (std::int64_t t = j / Lane<C>::width * Lane<C>::width; decays && t < lanes;
           t += Lane<C>::width) {
        store(to + t, load(to + t) * load(pair + j * lanes + t));
      }
      for (std::int64_t i = 0; i < j; ++i)
        to[i] = 0;
    }
  }
};

// The columns that a state sums: [v_j, 1] times the key's weight, zero for an invalid key.
template <class T>
void load_values(Compute<T>* to, std::int64_t ld, const View& v, std::int64_t b, std::int64_t h,
                 std::int64_t first, std::int64_t n, const LinearSums& how,
                 const ChunkScale<Compute<T>>& scale) {
  using C = Compute<T>;
  load_tokens<T>(to, ld, v, b, h, first, n, how.key_valid);
  for (std::int64_t t = 0; t < n; ++t) {
    C* row = to + t * ld;
    row[v.dim[3]] = is_valid(how.key_valid, b, first + t) ? C(1) : C(0);
    if (scale.weighted) scale_row(row, row, scale.weight[t], ld);
  }
}

// Rows of x [B,H,.,cols] from rows [t][ld].
template <class T>
void store_tokens(const View& x, std::int64_t b, std::int64_t h, std::int64_t first, std::int64_t n,
                  const Compute<T>* rows, std::int64_t ld) {
  T* head = x.ptr<T>() + b * x.stride[0] + h * x.stride[1];
  for (std::int64_t t = 0; t < n; ++t) {
    T* to = head + (first + t) * x.stride[2];
    for (std::int64_t c = 0; c < x.dim[3]; ++c)
      store_one(to + c, rows[t * ld + c]);
  }
}

// state [m][ld] += b^T c over n tokens.
template <class C>
void add_to_state(C* state, std::int64_t ld, const C* b, std::int64_t ldb, const C* c,
                  std::int64_t features, std::int64_t n) {
  tile_product<C>(state, ld, {b, 1, ldb}, c, ld, features, n, ld / Lane<C>::width, true);
}

}  // namespace fovea::cpu::FOVEA_ISA
