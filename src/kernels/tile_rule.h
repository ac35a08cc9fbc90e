#pragma once
// Which key a query may see, as plain data that every backend evaluates alike, 64 keys at a time.
// Source: baselines.md 4 to 7.

#include <cstdint>

#include "core/philox.h"

// Always inlined: a function left over would be shared between instruction sets by the linker.
// Rolled loops: unrolled, they would be most of a GPU kernel's code; but by eight where loads would
// wait for each other.
#ifdef __CUDACC__
#define FOVEA_SIGHT __host__ __device__ __forceinline__
#define FOVEA_ROLLED _Pragma("unroll 1")
#define FOVEA_BY_EIGHT _Pragma("unroll 8")
#else
#define FOVEA_SIGHT [[gnu::always_inline]] inline
#define FOVEA_ROLLED
#define FOVEA_BY_EIGHT
#endif

namespace fovea {

constexpr int kPlanTile = 64;
constexpr std::int32_t kNoToken = 0x7fffffff;

// Bits c of 0..63 with low <= first + c <= high.
FOVEA_SIGHT std::uint64_t range_word(std::int64_t low, std::int64_t high, std::int64_t first) {
  const std::int64_t from = low > first ? low - first : 0;
  const std::int64_t to = high - first < 63 ? high - first : 63;
  if (from > to) return 0;
  return (~std::uint64_t{0} << from) & (~std::uint64_t{0} >> (63 - to));
}

// Bits c with (first + c - origin) mod step = 0; step >= 1.
FOVEA_SIGHT std::uint64_t step_word(std::int64_t origin, std::int32_t step, std::int64_t first) {
  const std::int32_t ahead = static_cast<std::int32_t>(origin - first) % step;
  const std::int32_t start = ahead < 0 ? ahead + step : ahead;
  if (start > 63) return 0;
  std::uint64_t word = 1;
  FOVEA_ROLLED
  for (std::int32_t reach = step; reach < 64; reach *= 2)
    word |= word << reach;
  return word << start;
}

// A pattern is the union of the terms that are set; none set means everything. With p the query's
// position i + (M - N), below 0 of which a pattern shows nothing, and j the key's:
struct TileRule {
  // Window: p - left <= j <= p + right and (p - j) mod dilation = 0. left < 0: off.
  std::int32_t left = -1, right = 0, dilation = 1;
  // Stride: (p - j) mod stride = 0. 0: off.
  std::int32_t stride = 0;
  // Columns: column_from <= j mod period < column_to. 0: off.
  std::int32_t period = 0, column_from = 0, column_to = 0;
  // Blocks of any size: -block_left <= floor(j / block) - floor(p / block) <= block_right.
  // block_left < 0: off.
  std::int32_t block = 64, block_left = -1, block_right = 0;
  // Global: keys j < first_keys or >= last_keys are seen by all, queries p < first_queries or >=
  // last_queries see all.
  std::int32_t first_keys = 0, last_keys = kNoToken;
  std::int32_t first_queries = 0, last_queries = kNoToken;
  // Further global tokens as bits (pack_flags), by key j and by query i; strides in words by
  // sample, 0 shared. Null: off.
  const std::uint64_t* key_flags = nullptr;
  const std::uint64_t* query_flags = nullptr;
  std::int64_t key_flags_batch = 0, query_flags_batch = 0;
  // Listed blocks: block floor(j / block) is among the list_width entries of row floor(p / block);
  // -1 is no block. Rows there must be for every p < M.
  const std::int32_t* list = nullptr;
  std::int32_t list_width = 0;
  std::int64_t list_batch = 0;  // entries by sample, 0 shared
  // Bit masks of listed blocks, with block = 64: key j is seen if bit j mod 64 of word
  // [row, entry, p mod 64] is set too. Null: all 64 x 64.
  const std::uint64_t* list_words = nullptr;
  std::int64_t list_words_batch = 0;

  // Stairs: j < stair_width (floor(i / stair_block) - stair_lag), i the query itself: every
  // stair_block queries on, stair_width more of the keys are seen, whatever their positions.
  // Not for plans with orders. 0: off.
  std::int32_t stair_width = 0, stair_block = 1, stair_lag = 0;

  // And whatever the pattern: tokens t >= length[b] are not real, and what they hold, NaN included,
  // has no effect, as with valid = 0. i32 [B]; null: off.
  const std::int32_t* query_lengths = nullptr;
  const std::int32_t* key_lengths = nullptr;

  // Whether p and j of the pattern count slots instead of tokens (of a plan with orders).
  // Causality, lengths, valid and segments always speak of tokens, and so do query_flags' i.
  bool in_slots = false;
  // And whatever the pattern: no query sees the key of its own token (i = j).
  bool hides_own = false;

  FOVEA_SIGHT bool patterned() const {
    return left >= 0 || stair_width > 0 || stride > 0 || period > 0 || block_left >= 0 ||
           first_keys > 0 || last_keys != kNoToken || first_queries > 0 ||
           last_queries != kNoToken || key_flags != nullptr || query_flags != nullptr ||
           list != nullptr;
  }

  // Whether the rule is one window without steps, p - left <= j <= p + right, and nothing else.
  FOVEA_SIGHT bool is_band() const {
    TileRule others = *this;
    others.left = -1;
    return left >= 0 && right >= 0 && dilation == 1 && !others.patterned() &&
           query_lengths == nullptr && key_lengths == nullptr && !hides_own;
  }

  // Keys that the stairs show to a query.
  FOVEA_SIGHT std::int64_t stairs(std::int64_t query) const {
    return std::int64_t{stair_width} * (static_cast<std::int32_t>(query) / stair_block - stair_lag);
  }

  // Bit c: whether the pattern shows key first + c to the query `query` at position p. first is a
  // multiple of 64. Bits past M are unspecified.
  FOVEA_SIGHT std::uint64_t pattern_word(std::int64_t sample, std::int64_t query, std::int64_t p,
                                         std::int64_t first) const {
    const std::uint64_t all = ~std::uint64_t{0};
    if (!patterned()) return all;
    std::uint64_t word = stair_width > 0 ? range_word(0, stairs(query) - 1, first) : 0;
    if (p < 0) return word;
    if (p < first_queries || p >= last_queries) return all;
    if (query_flags != nullptr &&
        (query_flags[sample * query_flags_batch + query / 64] >> (query % 64) & 1) != 0)
      return all;
    word |= range_word(0, std::int64_t{first_keys} - 1, first);
    if (last_keys != kNoToken) word |= range_word(last_keys, kNoToken, first);
    if (left >= 0) {
      std::uint64_t window = range_word(p - left, p + right, first);
      if (dilation > 1 && window != 0) window &= step_word(p, dilation, first);
      word |= window;
    }
    if (stride > 0) word |= step_word(p, stride, first);
    if (period > 0) {
      const std::int64_t start = std::int64_t{static_cast<std::int32_t>(first) / period} * period;
      FOVEA_ROLLED
      for (std::int64_t at = start; at < first + kPlanTile; at += period)
        word |= range_word(at + column_from, at + column_to - 1, first);
    }
    if (key_flags != nullptr) word |= key_flags[sample * key_flags_batch + first / 64];
    if (block_left >= 0) {
      const std::int64_t own = static_cast<std::int32_t>(p) / block;
      word |= range_word((own - block_left) * block, (own + block_right + 1) * block - 1, first);
    }
    if (list != nullptr) {
      const std::int64_t row = std::int64_t{static_cast<std::int32_t>(p) / block} * list_width;
      FOVEA_ROLLED
      for (std::int64_t e = row; e < row + list_width; ++e) {
        const std::int64_t listed = list[sample * list_batch + e];
        if (listed < 0) continue;
        std::uint64_t seen = range_word(listed * block, (listed + 1) * block - 1, first);
        if (list_words != nullptr && seen != 0)
          seen &= list_words[sample * list_words_batch + e * 64 + p % 64];
        word |= seen;
      }
    }
    return word;
  }

  // False only if the pattern shows none of keys first..first + 63 to any query of positions
  // [low, high]: a quick no.
  FOVEA_SIGHT bool reaches(std::int64_t sample, std::int64_t low, std::int64_t high,
                           std::int64_t first) const {
    const bool everywhere =
        stride > 0 || period > 0 || key_flags != nullptr || query_flags != nullptr;
    if (everywhere || !patterned()) return true;
    const std::int64_t last = first + 63;
    if (low < first_queries || high >= last_queries || first < first_keys || last >= last_keys)
      return true;
    if (left >= 0 && low - left <= last && high + right >= first) return true;
    if (high < 0) return false;
    const std::int64_t from = (low > 0 ? low : 0) / block, to = high / block;
    if (block_left >= 0 && (from - block_left) * block <= last &&
        (to + block_right + 1) * block > first)
      return true;
    if (list == nullptr) return false;
    FOVEA_ROLLED
    for (std::int64_t e = from * list_width; e < (to + 1) * list_width; ++e) {
      const std::int64_t listed = list[sample * list_batch + e];
      if (listed >= 0 && listed * block <= last && (listed + 1) * block > first) return true;
    }
    return false;
  }
};

// Rows of an order, and tokens' marks; strides in elements, 0 shared, null absent.
struct OrderRows {
  const std::int32_t* at = nullptr;
  std::int64_t batch = 0, head = 0;
};
template <class T>
struct TokenMarks {
  const T* at = nullptr;
  std::int64_t batch = 0, token = 0;
  FOVEA_SIGHT T of(std::int64_t sample, std::int64_t i) const {
    return at[sample * batch + i * token];
  }
};

// The whole predicate of a call: pattern and causal and lengths and valid and segments. What
// tile_plan_build lists by, and what a kernel asks in partial tiles. Made by tile_sight().
struct TileSight {
  const TileRule* rules = nullptr;
  std::int32_t heads = 1, group = 1;
  std::int32_t queries = 0, keys = 0;
  bool causal = false;
  OrderRows query_order, key_order;
  TokenMarks<std::uint8_t> query_valid, key_valid;
  TokenMarks<std::int32_t> query_segments, key_segments;

  FOVEA_SIGHT const TileRule& rule(std::int64_t head) const { return rules[head % heads]; }
  FOVEA_SIGHT std::int64_t query_at(std::int64_t sample, std::int64_t head,
                                    std::int64_t slot) const {
    if (query_order.at == nullptr) return slot;
    return query_order.at[sample * query_order.batch + head * query_order.head + slot];
  }
  // `head` is the query head.
  FOVEA_SIGHT std::int64_t key_at(std::int64_t sample, std::int64_t head, std::int64_t slot) const {
    if (key_order.at == nullptr) return slot;
    return key_order.at[sample * key_order.batch + head / group * key_order.head + slot];
  }

  // The slots of one key tile that exist.
  FOVEA_SIGHT std::uint64_t real_keys(std::int64_t key_tile) const {
    return range_word(0, std::int64_t{keys} - 1, key_tile * kPlanTile);
  }

  // For keys in an order, bit c < 32: whether causality, hides_own and key_lengths show the key in
  // key slot `slot` + c to the query; unspecified past the end.
  FOVEA_SIGHT std::uint32_t numbers_word(const TileRule& r, std::int64_t sample, std::int64_t head,
                                         std::int64_t query, std::int64_t slot) const {
    const std::int32_t* const row =
        key_order.at + sample * key_order.batch + head / group * key_order.head;
    const auto first = static_cast<std::int32_t>(slot), own = static_cast<std::int32_t>(query);
    const std::int32_t latest = causal ? own + keys - queries : kNoToken - 1;
    const std::int32_t length = r.key_lengths != nullptr ? r.key_lengths[sample] : kNoToken;
    const std::int32_t end = latest < length ? latest + 1 : length;
    const std::int32_t hidden = r.hides_own ? own : -1;
    std::uint32_t word = 0;
    FOVEA_BY_EIGHT
    for (std::int32_t c = 0; c < 32; ++c) {
      const std::int32_t key = row[first + c < keys ? first + c : keys - 1];
      word |= std::uint32_t{key < end && key != hidden} << c;
    }
    return word;
  }

  // Bit c: whether the query in `slot` sees the key in slot 64 key_tile + c; 0 past the ends.
  FOVEA_SIGHT std::uint64_t row(std::int64_t sample, std::int64_t head, std::int64_t slot,
                                std::int64_t key_tile) const {
    if (slot >= queries) return 0;
    const TileRule& r = rule(head);
    const std::int64_t first = key_tile * kPlanTile, offset = std::int64_t{keys} - queries;
    const std::int64_t query = query_at(sample, head, slot);
    if (r.query_lengths != nullptr && query >= r.query_lengths[sample]) return 0;
    if (query_valid.at != nullptr && query_valid.of(sample, query) == 0) return 0;
    const std::int64_t p = (r.in_slots ? slot : query) + offset;
    const bool ordered = key_order.at != nullptr;
    std::uint64_t word = real_keys(key_tile);
    if (r.in_slots || !ordered) word &= r.pattern_word(sample, query, p, first);
    if (!ordered) {
      if (r.hides_own) word &= ~range_word(query, query, first);
      if (causal) word &= range_word(0, query + offset, first);
      if (r.key_lengths != nullptr)
        word &= range_word(0, std::int64_t{r.key_lengths[sample]} - 1, first);
      if (key_valid.at == nullptr && key_segments.at == nullptr) return word;
    }
    if (word == 0) return 0;
    if (ordered && r.in_slots && key_valid.at == nullptr && key_segments.at == nullptr) {
      return word & (std::uint64_t{numbers_word(r, sample, head, query, first + 32)} << 32 |
                     numbers_word(r, sample, head, query, first));
    }
    const std::int32_t segment =
        query_segments.at != nullptr ? query_segments.of(sample, query) : 0;
    FOVEA_ROLLED
    for (int c = 0; c < kPlanTile; ++c) {
      const std::uint64_t bit = std::uint64_t{1} << c;
      if ((word & bit) == 0) continue;
      const std::int64_t key = key_at(sample, head, first + c);
      bool seen = key_valid.at == nullptr || key_valid.of(sample, key) != 0;
      if (r.hides_own) seen = seen && key != query;
      if (key_segments.at != nullptr) seen = seen && key_segments.of(sample, key) == segment;
      if (ordered) {
        if (causal) seen = seen && key <= query + offset;
        if (r.key_lengths != nullptr) seen = seen && key < r.key_lengths[sample];
        if (!r.in_slots && seen)
          seen = (r.pattern_word(sample, query, p, key / 64 * 64) >> (key % 64) & 1) != 0;
      }
      if (!seen) word &= ~bit;
    }
    return word;
  }

  // False only if no query of one tile sees any key of the other: a quick no. Orders leave it to
  // in_slots rules.
  FOVEA_SIGHT bool reaches(std::int64_t sample, std::int64_t head, std::int64_t query_tile,
                           std::int64_t key_tile) const {
    const TileRule& r = rule(head);
    const std::int64_t offset = std::int64_t{keys} - queries, first = key_tile * kPlanTile;
    const std::int64_t low = query_tile * kPlanTile + offset;
    const std::int64_t end = std::int64_t{queries} - 1 + offset;
    const std::int64_t high = low + kPlanTile - 1 < end ? low + kPlanTile - 1 : end;
    const bool in_order = query_order.at == nullptr && key_order.at == nullptr;
    if (in_order && causal && first > high) return false;
    if (in_order && r.key_lengths != nullptr && first >= r.key_lengths[sample]) return false;
    if (in_order && r.query_lengths != nullptr && low - offset >= r.query_lengths[sample])
      return false;
    if (r.stair_width > 0 && first < r.stairs(high - offset)) return true;
    return (!in_order && !r.in_slots) || r.reaches(sample, low, high, first);
  }
};

}  // namespace fovea
