#pragma once
// What the kernels of sm_90a that follow a plan share: one warpgroup owns a tile of 64 tokens of
// one side and multiplies it with the tiles of the other side that the plan lists, which stream
// through shared memory in stages. For heads up to 64 wide.
//
// A tile's stage also takes, for a tile seen in part, the rule's words of its 64 queries, which all
// threads make together while the tiles before are worked on.

#include "kernels/cuda/flash/pieces.cuh"
#include "kernels/cuda/flash/softmax.cuh"
#include "kernels/cuda/tile/wgmma.cuh"

namespace fovea::cuda {

using PlanSwizzle = Swizzled<64>;
constexpr unsigned kPlanTileBytes = kPlanTile * PlanSwizzle::kRowBytes;

// Shared memory of a block with kOwn own tiles and kStages stages of the stream: of each stage two
// tiles b, b', then lse and delta, words and marks; and the own marks.
template <int kOwn, int kStages_>
struct PlanMemory {
  static constexpr int kStages = kStages_, kAhead = kStages - 1;  // tiles on their way
  static constexpr unsigned kStageBytes = 2 * kPlanTileBytes, kRowBytes = 512;
  static constexpr unsigned kRowsAt = kOwn * kPlanTileBytes + kStages * kStageBytes;
  static constexpr unsigned kWordsAt = kRowsAt + kStages * kRowBytes;
  static constexpr unsigned kMarksAt = kWordsAt + kStages * kRowBytes;
  static constexpr unsigned kOwnMarksAt = kMarksAt + kStages * kRowBytes;
  static constexpr unsigned kBytes = kOwnMarksAt + kRowBytes + PlanSwizzle::kAlignment;

  unsigned own;
  __device__ __forceinline__ PlanMemory() : own(tile_base()) {}
  __device__ __forceinline__ unsigned stage(int i) const {
    return own + kOwn * kPlanTileBytes + static_cast<unsigned>(i) * kStageBytes;
  }
  __device__ __forceinline__ unsigned rows(int i) const {
    return own + kRowsAt + static_cast<unsigned>(i) * kRowBytes;
  }
  __device__ __forceinline__ unsigned words(int i) const {
    return own + kWordsAt + static_cast<unsigned>(i) * kRowBytes;
  }
  __device__ __forceinline__ unsigned marks(int i) const {
    return own + kMarksAt + static_cast<unsigned>(i) * kRowBytes;
  }
  __device__ __forceinline__ unsigned own_marks() const { return own + kOwnMarksAt; }
};

// The kinds of tiles that are there or on their way, the one that is worked on first.
template <int kAhead>
struct TileKinds {
  int kind[kAhead] = {};  // of NextTile
  __device__ __forceinline__ void push(int last) {
#pragma unroll
    for (int i = 0; i + 1 < kAhead; ++i)
      kind[i] = kind[i + 1];
    kind[kAhead - 1] = last;
  }
};

// What a block works on: the own tile `tile` of head `head`, with the lists of `heads` query heads
// from `first_head` on; or a piece of it.
struct PlanLine {
  int b = 0, head = 0, tile = 0, first_head = 0, heads = 1, low = 0, high = kNoTile;
  float* sums = nullptr;  // of a piece

  PlanLine() = default;
  __device__ __forceinline__ PlanLine(const PieceTable& table, int at, int tiles, int own_heads) {
    const Piece piece = table.pieces[at];
    const int one = piece.line / tiles;
    b = one / own_heads, head = one % own_heads, tile = piece.line % tiles;
    first_head = piece.head, low = piece.low, high = piece.high;
    sums = table.sums + static_cast<std::int64_t>(at) * table.floats;
  }
};

// The next tile of a walk, and what its block needs to know when it works on it. By shuffles, so
// that the compiler knows that all lanes agree: addresses and branches that follow cost less.
struct NextTile {
  int head, tile;
  int kind;  // 0: there is none; else TileState << 8 | its tokens that exist

  __device__ __forceinline__ NextTile(const TileCursor<true, 1>& at, int tokens)
      : head(__shfl_sync(~0u, at.head, 0)), tile(__shfl_sync(~0u, at.tile, 0)) {
    const int left = tokens - at.tile * kPlanTile;
    kind = at.done() ? 0 : static_cast<int>(at.state << 8) | (left < kPlanTile ? left : kPlanTile);
    kind = __shfl_sync(~0u, kind, 0);
  }
};
__device__ __forceinline__ bool is_seen_in_part(int kind) {
  return kind >> 8 == kSeenInPart;
}

// Starts copying 64 rows of two operands, as load_tile does. Gathered rows and rows that may not
// exist one way, others another: paths are few because their code fills the instruction cache.
template <class T>
__device__ __forceinline__ void load_two(unsigned to, const HeadRows& one, int width,
                                         const HeadRows& two, int width2, int b, int head,
                                         int first, int count, const Tokens& tokens,
                                         const std::int32_t* order, int end) {
  using Tile = PlanSwizzle;
  constexpr int kTurns = 4, kRowsAtOnce = kPlanTile / kTurns;
  constexpr unsigned kSecond = kPlanTileBytes;
  const int piece = static_cast<int>(threadIdx.x) % 8, row = static_cast<int>(threadIdx.x) / 8;
  const T *from = one.at<const T>(b, head) + piece * 8,
          *from2 = two.at<const T>(b, head) + piece * 8;
  const bool real = piece * 8 < width, real2 = piece * 8 < width2;
  if (order != nullptr || tokens.valid != nullptr) {
    int token[kTurns];
#pragma unroll
    for (int i = 0; i < kTurns; ++i) {
      const int slot = first + row + i * kRowsAtOnce;
      token[i] = slot < count ? token_at(order, slot) : kNoToken;
    }
#pragma unroll
    for (int i = 0; i < kTurns; ++i) {
      const bool exists = token[i] < end && tokens.is_valid(b, token[i]);
      const std::int64_t at = exists ? token[i] : 0;
      const unsigned into = to + Tile::offset(row + i * kRowsAtOnce, piece);
      copy_async(into, real ? from + at * one.row : from, exists && real);
      copy_async(into + kSecond, real2 ? from2 + at * two.row : from2, exists && real2);
    }
    return;
  }
  // A piece past the width is not read, but an address must be there: that of the row's start.
  if (!real) from -= piece * 8;
  if (!real2) from2 -= piece * 8;
  from += (first + row) * one.row, from2 += (first + row) * two.row;
  const int rows = min(count, end) - first - row;
#pragma unroll
  for (int i = 0; i < kTurns; ++i) {
    const bool exists = i * kRowsAtOnce < rows;
    const unsigned into = to + Tile::offset(row + i * kRowsAtOnce, piece);
    copy_async(into, from + i * kRowsAtOnce * one.row, exists && real);
    copy_async(into + kSecond, from2 + i * kRowsAtOnce * two.row, exists && real2);
  }
}

// The words of 64 queries for 64 keys, as TileSight::row has them without the tokens' marks: half a
// word a thread. One place asks the pattern, which is long code.
__device__ __forceinline__ void make_words(unsigned words, const TileSight& sight, int b, int head,
                                           int query_tile, int key_tile) {
  const int row = static_cast<int>(threadIdx.x) % kPlanTile, half = uniform_warp() / 2;
  const std::int64_t slot = std::int64_t{query_tile} * kPlanTile + row;
  const std::int64_t first = std::int64_t{key_tile} * kPlanTile;
  const std::int64_t offset = std::int64_t{sight.keys} - sight.queries;
  const TileRule& rule = sight.rule(head);
  const bool ordered = sight.key_order.at != nullptr, each = ordered && !rule.in_slots;
  std::uint64_t word = slot < sight.queries ? sight.real_keys(key_tile) : 0;
  const std::int64_t query = word != 0 ? sight.query_at(b, head, slot) : 0;
  if (rule.query_lengths != nullptr && query >= rule.query_lengths[b]) word = 0;
  const std::int64_t p = (rule.in_slots ? slot : query) + offset;
  // Keys in an order of which the pattern speaks by token are asked for one by one.
#pragma unroll 1
  for (int c = each ? 32 * half : 0; c < (each ? 32 * half + 32 : 1); ++c) {
    if ((word >> c & 1) == 0 && each) continue;
    const std::int64_t key = each ? sight.key_at(b, head, first + c) : first;
    if (word == 0) break;
    const std::uint64_t pattern = rule.pattern_word(b, query, p, key / kPlanTile * kPlanTile);
    if (!each)
      word &= pattern;
    else if ((pattern >> (key % kPlanTile) & 1) == 0)
      word &= ~(std::uint64_t{1} << c);
  }
  if (!ordered) {
    if (rule.hides_own) word &= ~range_word(query, query, first);
    if (sight.causal) word &= range_word(0, query + offset, first);
    if (rule.key_lengths != nullptr)
      word &= range_word(0, std::int64_t{rule.key_lengths[b]} - 1, first);
  }
  unsigned bits = static_cast<unsigned>(word >> (32 * half));
  if (ordered && bits != 0) bits &= sight.numbers_word(rule, b, head, query, first + 32 * half);
  *shared_pointer<unsigned>(words + static_cast<unsigned>(row * 8 + half * 4)) = bits;
  __syncwarp();
}

// Sets scores [64 own x 64 others] of a tile seen in part to -inf by the words.
template <bool kOwnsKeys>
__device__ __forceinline__ void hide_by_shared_words(float (&s)[8][4], unsigned words) {
  const float none = __int_as_float(0xff800000);
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = uniform_warp();
  const int lane_column = lane % 4 * 2, row = warp * 16 + lane / 4;
  if constexpr (kOwnsKeys) {
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const uint4 word =
          *shared_pointer<uint4>(words + static_cast<unsigned>(8 * n + lane_column) * 8);
      const unsigned left = (warp < 2 ? word.x : word.y) >> row % 32;
      const unsigned right = (warp < 2 ? word.z : word.w) >> row % 32;
      if ((left & 1) == 0) s[n][0] = none;
      if ((right & 1) == 0) s[n][1] = none;
      if ((left >> 8 & 1) == 0) s[n][2] = none;
      if ((right >> 8 & 1) == 0) s[n][3] = none;
    }
  } else {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const uint2 word = *shared_pointer<uint2>(words + static_cast<unsigned>(row + 8 * r) * 8);
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        const unsigned bits = (n < 4 ? word.x : word.y) >> lane_column >> (n % 4 * 8);
        if ((bits & 1) == 0) s[n][2 * r] = none;
        if ((bits >> 1 & 1) == 0) s[n][2 * r + 1] = none;
      }
    }
  }
}

// Sets scores of others past the end (for keys), and of tokens that do not exist or belong to
// another segment (if marked), to -inf. others: the tile's tokens that are real.
__device__ __forceinline__ void hide_by_marks(float (&s)[8][4], int others, bool marked,
                                              unsigned marks, unsigned own_marks) {
  const int lane = static_cast<int>(threadIdx.x) % 32, row = uniform_warp() * 16 + lane / 4;
  int2 own[2] = {};
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (marked)
      own[r] = *shared_pointer<int2>(own_marks + static_cast<unsigned>(row + 8 * r) * sizeof(int2));
  }
#pragma unroll
  for (int n = 0; n < 8; ++n) {
    const int column = 8 * n + lane % 4 * 2;
    int4 mark = {};
    if (marked) mark = mark_pair(marks, column);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const bool exists = (e % 2 == 0 ? mark.y : mark.w) != 0 && own[e / 2].y != 0;
      const bool alike = (e % 2 == 0 ? mark.x : mark.z) == own[e / 2].x;
      if (column + e % 2 >= others || (marked && !(exists && alike)))
        s[n][e] = __int_as_float(0xff800000);
    }
  }
}

// Starts d = own tile by the rows of the other, summed over the width.
template <class T>
__device__ __forceinline__ void own_by_rows(float (&d)[8][4], unsigned own, unsigned other) {
  const unsigned long long a = operand_at(own), b = operand_at(other);
  wgmma_first<T, Walk::along_k, Walk::along_k>(d, a, b);
#pragma unroll
  for (int i = 1; i < 4; ++i)  // 32 bytes on; addresses count by 16
    wgmma<T, Walk::along_k, Walk::along_k>(d, a + 2 * i, b + 2 * i);
  wgmma_commit();
}

// Starts d += scores by the other tile, summed over its tokens.
template <class T>
__device__ __forceinline__ void scores_by_tile(float (&d)[8][4], const unsigned (&scores)[4][4],
                                               unsigned other) {
  const unsigned long long b = operand_at(other);
  wgmma_fence();
#pragma unroll
  for (int i = 0; i < 4; ++i)  // 16 rows on
    wgmma<T, Walk::across_k>(d, scores[i], b + 128 * i);
  wgmma_commit();
}

}  // namespace fovea::cuda
