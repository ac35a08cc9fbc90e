#pragma once
// Locality-sensitive hashing of tokens, sorting by hash, and who sees whom then.
// Source: baselines.md 15.

#include "kernels/dispatch.h"

namespace fovea {

// lengths[b] = the valid tokens of sample b: all `tokens` if valid (u8 [B,N], any strides) is
// empty.
FOVEA_KERNEL(count_valid, StreamRef, const View& lengths, const View& valid, std::int64_t tokens)

// Angular hashing: bucket[r,b,h,i] = argmax over [x W ; -x W], the lowest index among equals, with
// W the first c columns of rotations[r], c = min(C, ceil(lengths[b] / (2 bucket_size))), at
// least 1. Invalid tokens get bucket 2 C.
//   bucket i32 [R,B,H,N]; x [B,H,N,D] float, any strides; rotations f32 [R,D,C]; lengths i32 [B];
//   valid u8 [B,N], any strides, or empty. Products in f64 for f64, else in f32, features in order.
FOVEA_KERNEL(lsh_buckets, StreamRef, const View& bucket, const View& x, const View& rotations,
             const View& lengths, const View& valid, std::int64_t bucket_size)

// A stable counting sort: order[p,s] = the token in slot s of row p by (key, token), and
// slot[p,order[p,s]] = s. key i32 [P,N] in [0, keys); order, slot i32 [P,N]; contiguous.
FOVEA_KERNEL(sort_by_key, StreamRef, const View& order, const View& slot, const View& key,
             std::int64_t keys)

// Which pairs of tokens attend in one part of LSH attention.
struct LshPart {
  std::int64_t round = 0;        // whose sorting the part follows
  bool wraps = false;            // the first chunk sees the last one of the round before, alone
  std::int64_t bucket_size = 0;  // slots of a chunk
  bool windowed = false;         // instead of chunks: the bucket_size slots before, of one bucket
  bool own_bucket = false;       // only tokens of one bucket
  bool once = false;             // not pairs that an earlier part shows
  bool any_wraps = false;        // whether rounds have wrapping parts, behind their own, at all
};

// For every 64 slots of queries, the tiles of 64 key slots that the part shows something of, and
// which pairs: list[p,t,e] = a tile or -1, words[p,t,e,row] as TileRule's list_words. Queries stand
// in the order of `round`, keys in the same (a wrapping part: in that of the round before). A token
// never sees itself, nor one that is invalid. A windowed part stands in the order of the tokens: in
// another, tokens to come would move the tiles that earlier ones are summed by, and so their bits.
//   bucket, order, slot i32 [R,P,N] contiguous, P = B heads; lengths i32 [B];
//   list i32 [P, tiles, W], words i64 [P, tiles, W, 64], W = lsh_list_width(part, N).
FOVEA_KERNEL(lsh_sight, StreamRef, const View& list, const View& words, const View& bucket,
             const View& order, const View& slot, const View& lengths, const LshPart& part)

// Tiles that 64 consecutive queries may see keys in.
[[gnu::always_inline]] inline std::int64_t lsh_list_width(const LshPart& part,
                                                          std::int64_t tokens) {
  const std::int64_t b = part.bucket_size;
  const std::int64_t span = part.wraps ? b : (63 / b + 3) * b;
  return part.windowed ? (tokens + 63) / 64 : (span + 62) / 64 + 1;
}

namespace meta {

inline void lsh_buckets(StreamRef stream, const View& bucket, const View& x, const View& rotations,
                        const View& lengths, const View& valid, std::int64_t bucket_size) {
  count(stream, bucket, x, rotations, lengths, valid);
  const std::int64_t wanted = (x.dim[2] + 2 * bucket_size - 1) / (2 * bucket_size);
  const std::int64_t columns = wanted < rotations.dim[2] ? wanted : rotations.dim[2];
  static_cast<CostCounter*>(stream.native)->flops +=
      2 * static_cast<double>(x.numel()) * static_cast<double>(rotations.dim[0] * columns);
}

}  // namespace meta

#ifdef __CUDACC__
#define FOVEA_LSH __host__ __device__ __forceinline__
#else
#define FOVEA_LSH [[gnu::always_inline]] inline
#endif

// What a part shows of one row p, pair by pair. Evaluated alike on every backend.
struct LshSight {
  LshPart part;
  const std::int32_t *bucket, *order, *slot;  // row p of round 0
  std::int64_t rounds, round_step;            // elements between rounds
  std::int64_t tokens, length;                // in all, and valid ones

  FOVEA_LSH std::int64_t key_round() const {
    return part.wraps ? (part.round + rounds - 1) % rounds : part.round;
  }
  // Whether part q shows token j to token i; both valid.
  FOVEA_LSH bool shows(std::int64_t round, bool wraps, std::int32_t i, std::int32_t j) const {
    const std::int64_t own = round * round_step;
    const std::int64_t before = wraps ? (round + rounds - 1) % rounds * round_step : own;
    const std::int64_t at = slot[own + i], to = slot[before + j];
    const std::int64_t b = part.bucket_size, last = (length - 1) / b;
    if (part.own_bucket || part.windowed) {  // buckets of two rounds are never the same
      if (bucket[own + i] != bucket[own + j] || (wraps && rounds > 1)) return false;
    }
    if (part.windowed) return to < at && at - to <= b;
    if (wraps) return at / b == 0 && to / b == last && (rounds > 1 || last > 0);
    return to / b == at / b || to / b + 1 == at / b;
  }
  FOVEA_LSH bool sees(std::int32_t i, std::int32_t j) const {
    if (i == j || !shows(part.round, part.wraps, i, j)) return false;
    if (!part.once) return true;
    for (std::int64_t r = 0; r <= part.round; ++r) {
      const bool is_own = r == part.round;
      if ((!is_own || part.wraps) && shows(r, false, i, j)) return false;
      if (part.any_wraps && !is_own && shows(r, true, i, j)) return false;
    }
    return true;
  }
  // The first key tile of the list of query tile t, and behind the last one.
  FOVEA_LSH void tiles(std::int64_t t, std::int64_t& first, std::int64_t& end) const {
    first = 0;
    end = t + 1;
    if (part.windowed) return;
    const std::int64_t b = part.bucket_size, low = t * 64, high = low + 63;
    std::int64_t from = (low / b - 1) * b, to = (high / b + 1) * b - 1;
    if (part.wraps) {
      from = (length - 1) / b * b;
      to = low < b ? length - 1 : from - 1;
    }
    if (from < 0) from = 0;
    if (to > length - 1) to = length - 1;
    first = from / 64;
    end = from > to ? first : to / 64 + 1;
  }
  // Bit c: whether the query in `at` sees the key in 64 tile + c.
  FOVEA_LSH std::uint64_t word(std::int64_t at, std::int64_t tile) const {
    if (at >= (part.windowed ? tokens : length)) return 0;
    std::uint64_t out = 0;
    if (part.windowed) {
      const auto i = static_cast<std::int32_t>(at);
      if (slot[part.round * round_step + i] >= length) return 0;
      for (std::int64_t j = tile * 64; j < tile * 64 + 64 && j < at; ++j) {
        if (sees(i, static_cast<std::int32_t>(j))) out |= std::uint64_t{1} << (j % 64);
      }
      return out;
    }
    const std::int32_t i = order[part.round * round_step + at];
    const std::int32_t* const keys = order + key_round() * round_step;
    for (std::int64_t c = 0; c < 64 && tile * 64 + c < length; ++c) {
      if (sees(i, keys[tile * 64 + c])) out |= std::uint64_t{1} << c;
    }
    return out;
  }
};

}  // namespace fovea
