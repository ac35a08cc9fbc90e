#pragma once
// One 64 x 64 tile of attention, as forward and backward share it. Scores stand transposed,
// s[j][i], so that vectors run along queries: softmax statistics need no sums across lanes, and
// keys and values are read one scalar at a time, unpacked.

#include <cmath>
#include <limits>

#include "kernels/attention_scores.h"
#include "kernels/cpu/flash_plan.h"
#include "kernels/cpu/random.h"
#include "kernels/cpu/tile.h"

namespace fovea::cpu::FOVEA_ISA {

constexpr std::int64_t kTile = kPlanTile;

// The sizes of one call.
struct AttentionSizes {
  std::int64_t batch, heads, kv_heads, group, queries, keys, width, value_width;
  std::int64_t offset;  // of the causal diagonal

  AttentionSizes(const View& q, const View& k, const View& v)
      : batch(q.dim[0]),
        heads(q.dim[1]),
        kv_heads(k.dim[1]),
        group(heads / kv_heads),
        queries(q.dim[2]),
        keys(k.dim[2]),
        width(q.dim[3]),
        value_width(v.dim[3]),
        offset(keys - queries) {}
};

inline std::int64_t tiles_of(std::int64_t n) {
  return (n + kTile - 1) / kTile;
}

// What a tile knows of its tokens. Lanes past `count` are invalid.
struct TileTokens {
  std::int64_t first = 0, count = 0;    // slots
  const std::int32_t* order = nullptr;  // a plan's: slot to token; null: the same
  bool all_valid = true, any_valid = false;
  bool has_segments = false;
  std::int32_t low = 0, high = 0;            // segments of the valid tokens
  alignas(64) std::int32_t valid[kTile];     // -1 or 0
  alignas(64) std::int32_t position[kTile];  // tokens
  alignas(64) std::int32_t segment[kTile];

  // Tokens at and past `length` are invalid too.
  TileTokens(std::int64_t tile, std::int64_t n, std::int64_t b, const View& valid_view,
             const View& segments, const std::int32_t* slots, std::int64_t length)
      : first(tile * kTile),
        count(n - first < kTile ? n - first : kTile),
        order(slots),
        has_segments(bool(segments)) {
    for (std::int64_t t = 0; t < kTile; ++t) {
      const bool real = t < count;
      const std::int64_t at = real && order != nullptr ? order[first + t] : first + t;
      const bool ok =
          real && at < length &&
          (!valid_view ||
           valid_view.ptr<std::uint8_t>()[b * valid_view.stride[0] + at * valid_view.stride[1]] !=
               0);
      valid[t] = ok ? -1 : 0;
      position[t] = static_cast<std::int32_t>(at);
      segment[t] =
          real && has_segments
              ? segments.ptr<std::int32_t>()[b * segments.stride[0] + at * segments.stride[1]]
              : 0;
      if (real && !ok) all_valid = false;
      if (!ok) continue;
      low = !any_valid || segment[t] < low ? segment[t] : low;
      high = !any_valid || segment[t] > high ? segment[t] : high;
      any_valid = true;
    }
  }
};

// The tokens of a call's tiles.
struct CallTokens {
  const AttentionScores& how;
  const AttentionSizes& a;
  PlanWalk walk;

  CallTokens(const AttentionScores& scores, const AttentionSizes& sizes)
      : how(scores), a(sizes), walk(scores, a.queries, a.keys, a.heads, a.kv_heads) {}

  TileTokens queries(std::int64_t tile, std::int64_t b, std::int64_t h) const {
    return {tile,
            a.queries,
            b,
            how.query_valid,
            how.query_segments,
            walk.query_order(b, h),
            walk.query_length(b, h)};
  }
  // h is the query head.
  TileTokens keys(std::int64_t tile, std::int64_t b, std::int64_t h) const {
    return {tile,
            a.keys,
            b,
            how.key_valid,
            how.key_segments,
            walk.key_order(b, h / a.group),
            walk.key_length(b, h)};
  }
  // Whether no query of one tile sees any key of the other. Skipping such a pair changes no bit.
  bool hidden(const TileTokens& queries, const TileTokens& keys, TileKind kind) const {
    if (!queries.any_valid || !keys.any_valid) return true;
    if (kind == TileKind::by_masks && how.causal &&
        keys.first > queries.first + queries.count - 1 + a.offset)
      return true;
    return keys.has_segments && (keys.high < queries.low || keys.low > queries.high);
  }
};

// Rows of x [B,H,n,cols] under `tokens`, converted; invalid rows become zero, so that what they
// hold cannot reach anything.
template <class T>
void load_rows(Compute<T>* to, std::int64_t ld, const View& x, std::int64_t b, std::int64_t h,
               const TileTokens& tokens) {
  using C = Compute<T>;
  const std::int64_t cols = x.dim[3];
  const T* rows = x.ptr<T>() + b * x.stride[0] + h * x.stride[1];
  for (std::int64_t t = 0; t < tokens.count; ++t, to += ld) {
    if (tokens.valid[t] == 0) {
      for (std::int64_t c = 0; c < cols; ++c)
        to[c] = 0;
      continue;
    }
    const T* from = rows + tokens.position[t] * x.stride[2];
    std::int64_t c = 0;
    for (; c + Lane<C>::width <= cols; c += Lane<C>::width)
      store(to + c, load(from + c));
    for (; c < cols; ++c)
      to[c] = load_one(from + c);
  }
}

// to[c][t] = rows[t][c] with kTile columns; lanes past `count` become zero.
template <class C>
void transpose_in(C* to, const C* rows, std::int64_t ld, std::int64_t count, std::int64_t cols) {
  for (std::int64_t c = 0; c < cols; ++c) {
    for (std::int64_t t = 0; t < kTile; ++t)
      to[c * kTile + t] = t < count ? rows[t * ld + c] : C(0);
  }
}

// Rows of x [B,H,n,cols] from the transposed tile.
template <class T>
void store_transposed(const View& x, std::int64_t b, std::int64_t h, const TileTokens& tokens,
                      const Compute<T>* tile) {
  T* rows = x.ptr<T>() + b * x.stride[0] + h * x.stride[1];
  for (std::int64_t t = 0; t < tokens.count; ++t) {
    T* to = rows + tokens.position[t] * x.stride[2];
    for (std::int64_t c = 0; c < x.dim[3]; ++c)
      store_one(to + c, tile[c * kTile + t]);
  }
}

// Turns products s[j][i] into scores: scale, cap, bias, slope; -inf where hidden. `cap_slopes`, if
// wanted and there is a cap: its derivative, of s's layout.
template <class T>
void finish_scores(Compute<T>* s, const AttentionScores& how, const AttentionSizes& a,
                   const TileTokens& queries, const TileTokens& keys, const TileMask& mask,
                   std::int64_t b, std::int64_t h, std::int64_t vectors,
                   Compute<T>* cap_slopes = nullptr) {
  using C = Compute<T>;
  using V = Vector<C>;
  const bool capped = how.softcap > 0;
  const V cap = every<C>(how.softcap), inverse_cap = every<C>(capped ? 1 / how.softcap : 0);
  const V scale = every<C>(how.scale), none = every<C>(-std::numeric_limits<C>::infinity());
  const bool biased = how.bias || how.alibi_slopes;
  const bool causal = how.causal && mask.kind == TileKind::by_masks &&
                      keys.first + keys.count - 1 > queries.first + a.offset;
  const bool one_segment = keys.low == keys.high && queries.low == queries.high;
  const bool partial = mask.kind == TileKind::partial;
  const bool open = !partial && queries.all_valid && keys.all_valid && !causal &&
                    (!keys.has_segments || (one_segment && keys.low == queries.low));
  const C slope = how.alibi_slopes ? how.alibi_slopes.ptr<C>()[h] : C(0);
  const T* bias = nullptr;
  if (how.bias) {
    bias = how.bias.ptr<T>() + (how.bias.dim[0] == 1 ? 0 : b * how.bias.stride[0]) +
           (how.bias.dim[1] == 1 ? 0 : h * how.bias.stride[1]);
  }
  alignas(64) C extra[kTile] = {};
  for (std::int64_t j = 0; j < keys.count; ++j) {
    C* row = s + j * kTile;
    const std::int64_t key = keys.position[j];
    if (biased) {
      for (std::int64_t i = 0; i < queries.count; ++i) {
        const std::int64_t query = queries.position[i];
        const auto distance = static_cast<C>(query + a.offset - key);
        extra[i] = -slope * (distance < 0 ? -distance : distance);
        if (bias != nullptr)
          extra[i] += load_one(bias + query * how.bias.stride[2] + key * how.bias.stride[3]);
      }
    }
    const auto diagonal = static_cast<std::int32_t>(key - a.offset);
    for (std::int64_t n = 0; n < vectors * Lane<C>::width; n += Lane<C>::width) {
      V score = load(row + n) * scale;
      if (capped) {
        const V t = tanh(score * inverse_cap);
        score = cap * t;
        if (cap_slopes != nullptr) store(cap_slopes + j * kTile + n, every<C>(1) - t * t);
      }
      if (biased) score += load(extra + n);
      if (partial) {
        score = select(bit_set(load_ints(mask.half(j) + n, V{}), static_cast<int>(j % 32)), score,
                       none);
      } else if (!open) {
        auto seen = load_ints(queries.valid + n, V{}) & keys.valid[j];
        if (causal) seen &= at_least(load_ints(queries.position + n, V{}), diagonal);
        if (keys.has_segments) seen &= equal(load_ints(queries.segment + n, V{}), keys.segment[j]);
        score = select(seen, score, none);
      }
      store(row + n, score);
    }
  }
}

// keep[j][i] = 1 / (1 - p) where a probability is kept, else 0.
template <class C>
void dropout_tile(C* keep, const AttentionScores& how, const AttentionSizes& a,
                  const TileTokens& queries, const TileTokens& keys, std::int64_t b,
                  std::int64_t h) {
  const Key& key = how.dropout_key;
  const std::int64_t sample = (key.at ? key.at->first_sample : 0) + b;
  const auto p = static_cast<float>(how.dropout);
  const C multiplier = static_cast<C>(1 / (1 - how.dropout));
  RandomBlock random(key);
  for (std::int64_t i = 0; i < queries.count; ++i) {
    const std::int64_t row = ((sample * a.heads + h) * a.queries + queries.position[i]) * a.keys;
    for (std::int64_t j = 0; j < keys.count;) {
      const std::int64_t place = random.fill(static_cast<std::uint64_t>(row + keys.position[j]));
      const std::int64_t left = keys.order != nullptr ? 1 : keys.count - j;
      const std::int64_t ready = RandomBlock::kSize - place;
      const std::int64_t run = left < ready ? left : ready;
      alignas(64) C drawn[RandomBlock::kSize];
      for (std::int64_t r = 0; r < RandomBlock::kSize; ++r)
        drawn[r] = uniform_float(random.bits()[r]) >= p ? multiplier : C(0);
      for (std::int64_t r = 0; r < run; ++r)
        keep[(j + r) * kTile + i] = drawn[place + r];
      j += run;
    }
  }
}

}  // namespace fovea::cpu::FOVEA_ISA
