#pragma once
// Long lines of a plan, cut into pieces that different blocks work on: a line is an own tile with
// the lists of the other side's tiles that it meets. Global keys are met by every query, so one
// block alone would work on for long after all others are done.
//
// Which lines are cut, and where, follows from the plan and the numbers of samples and heads: lines
// of more than `longest` entries, the power of two from kLeastPiece on that would make at most
// kPieces pieces of all entries of all lines. The sums of a line's pieces are added in their order.

#include "kernels/cuda/flash/walk.cuh"

namespace fovea::cuda {

constexpr int kLeastPiece = 16, kPieces = 512;

struct Piece {
  int line;          // (sample own heads + own head) own tiles + own tile
  int head;          // the query head whose list it walks
  int low, high;     // tiles of the other side, high excluded
  int first, count;  // of the line's pieces, one after another in the table
};

// Of one side; no pieces where it is certain that no line is long.
struct PieceTable {
  int* header = nullptr;  // [longest, number of pieces]
  Piece* pieces = nullptr;
  float* sums = nullptr;  // [pieces, floats]
  int capacity = 0, floats = 0;

  __device__ __forceinline__ int count() const { return capacity > 0 ? header[1] : 0; }
};

struct PieceTables {
  PieceTable keys, queries;
  int blocks = 0;  // that share the pieces, in front of those of the other lines

  // Room for the pieces of a call's own keys and own queries, of so many sums each; 0: not wanted.
  std::size_t bytes = 0;
  PieceTables() = default;
  PieceTables(const FlashCall& call, int key_floats, int query_floats);
  void place(float* at);
};

// Fills the tables. They must have been placed.
void find_pieces(StreamRef stream, const FlashCall& call, const PieceTables& tables);

// The entries of a line, and its pieces; 0: it is not cut.
struct LineLength {
  int entries = 0, pieces = 0;

  // Lists of `heads` query heads from `head` on.
  __device__ __forceinline__ LineLength(const FlashPlan& plan, const PlanLists& lists, int b,
                                        int head, int heads, int tile, int longest) {
    for (int h = head; h < head + heads; ++h) {
      const std::int32_t* begin =
          lists.begin + static_cast<std::int64_t>(plan.list(b, h)) * (lists.count + 1) + tile;
      const int n = begin[1] - begin[0];
      entries += n;
      pieces += (n + longest - 1) / longest;
    }
    if (entries <= longest) pieces = 0;
  }
  __device__ __forceinline__ bool is_cut() const { return pieces > 0; }
};

}  // namespace fovea::cuda
