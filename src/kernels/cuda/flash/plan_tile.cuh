#pragma once
// What the kernels of sm_90a that follow a plan share: one warpgroup owns a tile of 64 tokens of
// one side and multiplies it with the tiles of the other side that the plan lists, which stream
// through shared memory in three stages. For heads up to 64 wide.
//
// Two tiles are on their way while one is worked on. A tile's stage also takes, for a tile seen in
// part, the rule's words of its 64 queries, which all threads make together.

#include "kernels/cuda/flash/pieces.cuh"
#include "kernels/cuda/flash/softmax.cuh"
#include "kernels/cuda/tile/wgmma.cuh"

namespace fovea::cuda {

constexpr int kPlanStages = 3;

// own, own' | b, b' | b, b' | b, b' | lse, delta | ... | words | ... | marks | ...
struct PlanMemory {
  using Tile = Swizzled<64>;
  static constexpr unsigned kTileBytes = kPlanTile * Tile::kRowBytes;
  static constexpr unsigned kStageBytes = 2 * kTileBytes, kRowBytes = 512;
  static constexpr unsigned kRowsAt = 2 * kTileBytes + kPlanStages * kStageBytes;
  static constexpr unsigned kWordsAt = kRowsAt + kPlanStages * kRowBytes;
  static constexpr unsigned kMarksAt = kWordsAt + kPlanStages * kRowBytes;
  static constexpr unsigned kBytes = kMarksAt + kPlanStages * kRowBytes + Tile::kAlignment;

  unsigned own;
  __device__ __forceinline__ PlanMemory()
      : own((shared_base() + Tile::kAlignment - 1) / Tile::kAlignment * Tile::kAlignment) {}
  __device__ __forceinline__ unsigned stage(int i) const {
    return own + 2 * kTileBytes + static_cast<unsigned>(i) * kStageBytes;
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

// A tile on its way or there: what its block needs to know when it works on it.
struct PlanTileState {
  bool real = false;
  unsigned state = 0;  // TileState
  int others = 0;      // its tokens that exist, if fewer than 64
};

// Starts copying 64 rows of two operands, as load_tile does.
template <class T>
__device__ __forceinline__ void load_two(unsigned to, const HeadRows& one, int width,
                                         const HeadRows& two, int width2, int b, int head,
                                         int first, int count, const Tokens& tokens,
                                         const std::int32_t* order, int end) {
  const T *from = one.at<const T>(b, head), *from2 = two.at<const T>(b, head);
  const unsigned to2 = to + PlanMemory::kTileBytes;
  if (order == nullptr) {
    load_tile<T, 64, kPlanTile, true>(to, from, one.row, first, count, width, tokens, b, order,
                                      end);
    load_tile<T, 64, kPlanTile, true>(to2, from2, two.row, first, count, width2, tokens, b, order,
                                      end);
    return;
  }
  using Tile = PlanMemory::Tile;
  constexpr int kTurns = 4, kRowsAtOnce = kPlanTile / kTurns;
  const int piece = static_cast<int>(threadIdx.x) % 8, row = static_cast<int>(threadIdx.x) / 8;
  int token[kTurns];
#pragma unroll
  for (int i = 0; i < kTurns; ++i) {
    const int slot = first + row + i * kRowsAtOnce;
    token[i] = slot < count ? order[slot] : kNoToken;
  }
#pragma unroll
  for (int i = 0; i < kTurns; ++i) {
    const bool exists = token[i] < end && tokens.is_valid(b, token[i]);
    const unsigned at = Tile::offset(row + i * kRowsAtOnce, piece);
    const bool real = exists && piece * 8 < width, real2 = exists && piece * 8 < width2;
    copy_async(to + at, real ? from + token[i] * one.row + piece * 8 : from, real);
    copy_async(to2 + at, real2 ? from2 + token[i] * two.row + piece * 8 : from2, real2);
  }
}

// The words of 64 queries for 64 keys: half a word a thread.
__device__ __forceinline__ void make_words(unsigned words, const TileSight& sight, int b, int head,
                                           int query_tile, int key_tile) {
  const int row = static_cast<int>(threadIdx.x) % kPlanTile, half = uniform_warp() / 2;
  const std::int64_t slot = std::int64_t{query_tile} * kPlanTile + row;
  const TileRule& rule = sight.rule(head);
  unsigned bits = 0;
  if (sight.key_order.at != nullptr && rule.in_slots) {
    if (slot < sight.queries) {
      const std::int64_t query = sight.query_at(b, head, slot), first = key_tile * kPlanTile;
      const std::uint64_t word =
          rule.query_lengths != nullptr && query >= rule.query_lengths[b]
              ? 0
              : sight.real_keys(key_tile) &
                    rule.pattern_word(b, query, slot + sight.keys - sight.queries, first);
      bits = static_cast<unsigned>(word >> (32 * half));
      if (bits != 0) bits &= sight.numbers_word(rule, b, head, query, first + 32 * half);
    }
  } else {
    bits = static_cast<unsigned>(sight.row(b, head, slot, key_tile) >> (32 * half));
  }
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
                                              unsigned marks, const int2 (&own)[2]) {
  const int lane_column = static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
  for (int n = 0; n < 8; ++n) {
    const int column = 8 * n + lane_column;
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
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const unsigned at = static_cast<unsigned>(i) * 32;
    if (i == 0)
      wgmma_first<T, Walk::along_k, Walk::along_k>(d, operand_at(own + at), operand_at(other + at));
    else
      wgmma<T, Walk::along_k, Walk::along_k>(d, operand_at(own + at), operand_at(other + at));
  }
  wgmma_commit();
}

// Starts d += scores by the other tile, summed over its tokens.
template <class T>
__device__ __forceinline__ void scores_by_tile(float (&d)[8][4], const unsigned (&scores)[4][4],
                                               unsigned other) {
  wgmma_fence();
#pragma unroll
  for (int i = 0; i < 4; ++i)
    wgmma<T, Walk::across_k>(d, scores[i], operand_at(other + static_cast<unsigned>(i) * 2048));
  wgmma_commit();
}

}  // namespace fovea::cuda
