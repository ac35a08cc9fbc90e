#pragma once
// What the tensor-core kernels share about tokens: loading tiles of rows, and who sees whom.

#include "kernels/cuda/flash/call.cuh"
#include "kernels/cuda/tile/mma.cuh"

namespace fovea::cuda {

constexpr int kFlashThreads = 128;

// The warp's number, by a shuffle: so the compiler knows that all lanes agree, and what depends on
// it is no divergence.
__device__ __forceinline__ int uniform_warp() {
  return __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0);
}

// Starts copying rows first .. first + kRows - 1 of a head into a swizzled tile. Rows past `count`,
// columns past `width` and (kMasked) rows of tokens that do not exist become zero, so that what
// they hold cannot reach anything. kMasked: rows are slots of `order`, and tokens from `end` on do
// not exist.
template <class T, int kWidth, int kRows, bool kMasked>
__device__ __forceinline__ void load_tile(unsigned to, const T* head, std::int64_t stride,
                                          int first, int count, int width, const Tokens& tokens,
                                          int b, const std::int32_t* order = nullptr,
                                          int end = kNoToken) {
  using Tile = Swizzled<kWidth>;
  // Lanes side by side in a row; a row of 24 pieces takes three rounds of eight.
  constexpr int kAcross = kFlashThreads % Tile::kPieces == 0 ? Tile::kPieces : 8;
  constexpr int kRowsAtOnce = kFlashThreads / kAcross;
  static_assert(kRows % kRowsAtOnce == 0 && Tile::kPieces % kAcross == 0);
  const int piece = static_cast<int>(threadIdx.x) % kAcross;
  const int row = static_cast<int>(threadIdx.x) / kAcross;
  const auto copy = [&](int r, const T* at, bool exists) {
#pragma unroll
    for (int p = 0; p < Tile::kPieces; p += kAcross) {
      const bool real = exists && (p + piece) * 8 < width;
      copy_async(to + Tile::offset(row + r, p + piece), real ? at + p * 8 : head, real);
    }
  };
  if (kMasked && (order != nullptr || tokens.valid != nullptr)) {
#pragma unroll 2
    for (int r = 0; r < kRows; r += kRowsAtOnce) {
      const bool exists = first + row + r < count;
      const int token = exists ? token_at(order, first + row + r) : 0;
      copy(r, head + token * stride + piece * 8,
           exists && token < end && tokens.is_valid(b, token));
    }
    return;
  }
  if constexpr (kMasked) count = min(count, end);
  const T* from = head + (first + row) * stride + piece * 8;
#pragma unroll
  for (int r = 0; r < kRows; r += kRowsAtOnce)
    copy(r, from + r * stride, first + row + r < count);
}

// The same for one warp, rows of tokens.
template <class T, int kWidth, int kRows>
__device__ __forceinline__ void load_rows_of_warp(unsigned to, const T* head, std::int64_t stride,
                                                  int first, int end, int width,
                                                  const Tokens& tokens, int b) {
  using Tile = Swizzled<kWidth>;
  constexpr int kAcross = 32 % Tile::kPieces == 0 ? Tile::kPieces : 8;
  constexpr int kRowsAtOnce = 32 / kAcross;
  static_assert(kRows % kRowsAtOnce == 0 && Tile::kPieces % kAcross == 0);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int piece = lane % kAcross, row = lane / kAcross;
  if (width == kWidth && first + kRows <= end && tokens.valid == nullptr) {
    // Rows of a lane are powers of two apart: their permutations differ by a constant.
    const T* from = head + (first + row) * stride + piece * 8;
    const unsigned place = to + Tile::offset(row, piece);
#pragma unroll
    for (int r = 0; r < kRows; r += kRowsAtOnce) {
#pragma unroll
      for (int p = 0; p < Tile::kPieces; p += kAcross)
        copy_async((place ^ static_cast<unsigned>(Tile::twist(r) << 4)) +
                       static_cast<unsigned>(r * Tile::kRowBytes + p * 16),
                   from + r * stride + p * 8, true);
    }
    return;
  }
#pragma unroll
  for (int r = 0; r < kRows; r += kRowsAtOnce) {
    const int token = first + row + r;
    const bool exists = token < end && tokens.is_valid(b, token);
    const T* from = head + token * stride + piece * 8;
#pragma unroll
    for (int p = 0; p < Tile::kPieces; p += kAcross) {
      const bool real = exists && (p + piece) * 8 < width;
      copy_async(to + Tile::offset(row + r, p + piece), real ? from + p * 8 : head, real);
    }
  }
}

// Accumulators of 16 kM rows of one warp, to 16 bits and out: through the warp's own part of shared
// memory, so that global memory sees whole rows. `stage` is the tile row the warp's rows start at.
// kMasked: rows are slots of `order`.
template <class T, int kWidth, int kM, bool kMasked = false>
__device__ __forceinline__ void store_rows(unsigned tile, int stage, T* head, std::int64_t stride,
                                           int first, int count, int width,
                                           const float (&rows)[kM][kWidth / 8][4],
                                           const std::int32_t* order = nullptr) {
  using Tile = Swizzled<kWidth>;
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int m = 0; m < kM; ++m) {
    const int row = stage + m * 16 + lane / 4;
    const unsigned within = static_cast<unsigned>(lane % 4 * 4);
#pragma unroll
    for (int n = 0; n < kWidth / 8; ++n) {
      *shared_pointer<unsigned>(tile + Tile::offset(row, n) + within) =
          pack<T>(rows[m][n][0], rows[m][n][1]);
      *shared_pointer<unsigned>(tile + Tile::offset(row + 8, n) + within) =
          pack<T>(rows[m][n][2], rows[m][n][3]);
    }
  }
  __syncwarp();
  constexpr int kAcross = 32 % Tile::kPieces == 0 ? Tile::kPieces : 8;
  constexpr int kRowsAtOnce = 32 / kAcross;
  const int piece = lane % kAcross;
#pragma unroll
  for (int r = lane / kAcross; r < 16 * kM; r += kRowsAtOnce) {
    if (first + r >= count) continue;
    T* to = head + (kMasked ? token_at(order, first + r) : first + r) * stride;
#pragma unroll
    for (int p = piece; p < Tile::kPieces; p += kAcross) {
      if (p * 8 < width)
        *reinterpret_cast<uint4*>(to + p * 8) =
            *shared_pointer<uint4>(tile + Tile::offset(stage + r, p));
    }
  }
}

// What a pair of tokens compares: x is the segment, y says whether the token exists.
__device__ __forceinline__ int2 mark_of(const Tokens& tokens, int b, int slot, int count,
                                        const std::int32_t* order) {
  if (slot >= count) return make_int2(0, 0);
  const int token = token_at(order, slot);
  return make_int2(tokens.segment(b, token), tokens.is_valid(b, token) ? 1 : 0);
}

// Marks of kRows tokens from `first`, for the block.
template <int kRows>
__device__ __forceinline__ void load_marks(unsigned to, int first, int count, const Tokens& tokens,
                                           int b, const std::int32_t* order) {
  for (int r = static_cast<int>(threadIdx.x); r < kRows; r += kFlashThreads)
    *shared_pointer<int2>(to + static_cast<unsigned>(r) * sizeof(int2)) =
        mark_of(tokens, b, first + r, count, order);
}

// The marks of two neighbouring tokens.
__device__ __forceinline__ int4 mark_pair(unsigned marks, int token) {
  return *shared_pointer<int4>(marks + static_cast<unsigned>(token) * sizeof(int2));
}

// A half-open range of tokens.
struct TokenRange {
  int begin, end;
};

// Narrows `range` of `others` to the first and last token whose segment lies between the lowest and
// the highest segment of the block's own tokens: packed documents and padding cost little then.
// Uses 16 bytes of shared memory. All threads call it and get the same range.
__device__ inline TokenRange narrowed(TokenRange range, unsigned shared, const Tokens& own,
                                      int own_first, int own_count, const Tokens& others, int b) {
  int* found = shared_pointer<int>(shared);
  if (threadIdx.x == 0) {
    found[0] = found[2] = 0x7fffffff;
    found[1] = found[3] = -0x7fffffff - 1;
  }
  __syncthreads();
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < own_count; i += kFlashThreads) {
    if (!own.is_valid(b, own_first + i)) continue;
    const int segment = own.segment(b, own_first + i);
    atomicMin(found, segment);
    atomicMax(found + 1, segment);
  }
  __syncthreads();
  const int low = found[0], high = found[1];
  int first = 0x7fffffff, last = -1;
#pragma unroll 2
  for (int j = range.begin + static_cast<int>(threadIdx.x); j < range.end; j += kFlashThreads) {
    if (!others.is_valid(b, j)) continue;
    const int segment = others.segment(b, j);
    if (segment < low || segment > high) continue;
    first = min(first, j);
    last = max(last, j);
  }
  if (last >= 0) {
    atomicMin(found + 2, first);
    atomicMax(found + 3, last);
  }
  __syncthreads();
  const TokenRange out = {found[2], found[3] + 1};
  __syncthreads();
  return out.end > out.begin && found[3] >= 0 ? out : TokenRange{0, 0};
}

}  // namespace fovea::cuda
