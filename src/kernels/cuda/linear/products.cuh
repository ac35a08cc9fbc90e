#pragma once
// Products of whole tiles of 16-bit numbers, many at once, and tiles that are
// brought in meanwhile.
//
// A block of four warps begins a group of products, adds them and ends the
// group. sm_90a runs them in the background, as products of the warpgroup on
// tiles in shared memory; elsewhere they are done when they are added. Tiles
// are SquareTile<T>'s, sums those of tile.cuh.

#include "kernels/cuda/linear/tile.cuh"
#include "kernels/cuda/tile/wgmma.cuh"

namespace fovea::cuda {

// The warp's 16 rows of a tile as first operand, in registers.
using HeldRows = unsigned[4][4];

// The kernels of this header keep no static shared memory, so that the dynamic
// one is aligned.
__device__ __forceinline__ unsigned aligned_shared_base() {
  extern __shared__ __align__(1024) unsigned char aligned_shared[];
  return static_cast<unsigned>(__cvta_generic_to_shared(aligned_shared));
}

template <class T>
__device__ __forceinline__ void hold(HeldRows& rows, unsigned tile, LanePlace at) {
  using Layout = typename SquareTile<T>::Layout;
  const unsigned lane = tile + Layout::lane_by_rows(at.lane);
#pragma unroll
  for (int k = 0; k < 4; ++k)
    ldmatrix(rows[k], Layout::block(lane, at.warp, k));
}
#if FOVEA_WARPGROUP_PRODUCTS
// operand_at for the four blocks of a tile, with little work for each.
template <Walk kWalk>
struct TileOperand {
  unsigned low;
  __device__ __forceinline__ explicit TileOperand(unsigned tile)
      : low(static_cast<unsigned>(operand_at(tile))) {}
  __device__ __forceinline__ unsigned long long block(unsigned k) const {
    constexpr unsigned kHigh = static_cast<unsigned>(operand_at(0) >> 32);
    return static_cast<unsigned long long>(kHigh) << 32 |
           (low + k * ((kWalk == Walk::along_k ? 32 : 2048) >> 4));
  }
};
#endif

// Sums are added to what was there, or begin with this product.
enum class From { sums, zero };

// sums += A B.
template <class T, Lies kA, Lies kB, From kFrom = From::sums>
__device__ __forceinline__ void add_product(float (&sums)[8][4], unsigned a, unsigned b,
                                            LanePlace at) {
#if FOVEA_WARPGROUP_PRODUCTS
  constexpr Walk kWalkA = kA == Lies::by_rows ? Walk::along_k : Walk::across_k;
  constexpr Walk kWalkB = kB == Lies::by_columns ? Walk::along_k : Walk::across_k;
  const TileOperand<kWalkA> first(a);
  const TileOperand<kWalkB> second(b);
#pragma unroll
  for (unsigned k = 0; k < 4; ++k) {
    if (k == 0 && kFrom == From::zero)
      wgmma_first<T, kWalkA, kWalkB>(sums, first.block(k), second.block(k));
    else
      wgmma<T, kWalkA, kWalkB>(sums, first.block(k), second.block(k));
  }
#else
  if constexpr (kFrom == From::zero) clear(sums);
  SquareTile<T>::template product<kA, kB>(sums, a, b, at);
#endif
}
template <class T, Lies kB, From kFrom = From::sums>
__device__ __forceinline__ void add_product(float (&sums)[8][4], const HeldRows& a, unsigned b,
                                            LanePlace at) {
#if FOVEA_WARPGROUP_PRODUCTS
  constexpr Walk kWalkB = kB == Lies::by_columns ? Walk::along_k : Walk::across_k;
  const TileOperand<kWalkB> second(b);
#pragma unroll
  for (unsigned k = 0; k < 4; ++k) {
    if (k == 0 && kFrom == From::zero)
      wgmma_first<T, kWalkB>(sums, a[k], second.block(k));
    else
      wgmma<T, kWalkB>(sums, a[k], second.block(k));
  }
#else
  if constexpr (kFrom == From::zero) clear(sums);
  using Layout = typename SquareTile<T>::Layout;
  const unsigned lane =
      b + (kB == Lies::by_rows ? Layout::lane_by_rows(at.lane) : Layout::lane_by_columns(at.lane));
#pragma unroll
  for (int k = 0; k < 4; ++k) {
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      unsigned y[4];
      if constexpr (kB == Lies::by_rows)
        ldmatrix_transposed(y, Layout::block(lane, k, n));
      else
        ldmatrix(y, Layout::block(lane, n, k));
      mma<T>(sums[2 * n], a[k], y[0], y[1]);
      mma<T>(sums[2 * n + 1], a[k], y[2], y[3]);
    }
  }
#endif
}

// What this thread brought in or wrote is seen by products of the block after
// the barrier.
template <int kPending>
__device__ __forceinline__ void await_tiles() {
  wait_copies<kPending>();
#if FOVEA_WARPGROUP_PRODUCTS
  wgmma_written();
#endif
  __syncthreads();
}

// Whether the rows of all allow 16-byte accesses, those that are not wanted
// aside.
template <class... Rows>
bool is_packed(const Rows&... rows) {
  return ((rows.data == nullptr || rows.packed) && ...);
}

// A thread's part of a tile that is brought in: piece threadIdx % 8 of the rows
// threadIdx / 8 + 16 i.
constexpr int kTileParts = kTileSide * 8 / kTileThreads;

// Which of the thread's rows are real, bit i: those of tokens first to first +
// 63 that exist and have real(token). Asked for once, not for every tile of the
// same tokens.
template <class F>
__device__ __forceinline__ unsigned real_rows(int first, int count, F real) {
  unsigned bits = 0;
#pragma unroll
  for (int i = 0; i < kTileParts; ++i) {
    const int token = first + static_cast<int>(threadIdx.x) / 8 + 16 * i;
    if (token < count && real(token)) bits |= 1u << i;
  }
  return bits;
}

// What a thread brings in of the rows of one head: its part of the tile whose
// first row is `first`.
template <class T>
__device__ __forceinline__ const T* part_of(const TileRows& rows, const T* head, int first) {
  return head + (first + static_cast<int>(threadIdx.x) / 8) * rows.row + threadIdx.x % 8 * 8;
}

// load_tile without factors, in the background, from `column` on, of part_of's
// rows: those that are not real are zero and not read. kPacked: all rows are
// packed; else they are copied at once. Kernels that bring in many tiles must
// fit the instruction cache, so one is not both.
template <class T, bool kPacked>
__device__ __forceinline__ void bring_tile(unsigned tile, const TileRows& rows, const T* part,
                                           int column, unsigned real) {
  using Layout = typename SquareTile<T>::Layout;
  const int row = static_cast<int>(threadIdx.x) / 8, piece = static_cast<int>(threadIdx.x) % 8;
  const int c = column + piece * 8;
  const unsigned to = tile + Layout::offset(row, piece);
  const T* from = part + column;
  if (c >= rows.width) real = 0;
  if constexpr (kPacked) {
#pragma unroll
    for (int i = 0; i < kTileParts; ++i)
      copy_async(to + static_cast<unsigned>(i) * 16 * Layout::kRowBytes, from + 16 * i * rows.row,
                 (real >> i & 1) != 0);
  } else {
#pragma unroll 1
    for (int i = 0; i < kTileParts * 8; ++i) {
      const int e = i % 8;
      const bool exists = (real >> (i / 8) & 1) != 0 && c + e < rows.width;
      *shared_pointer<T>(to + static_cast<unsigned>(i / 8 * 16 * Layout::kRowBytes + e * 2)) =
          exists ? from[i / 8 * 16 * rows.row + e] : from_float<T>(0.0f);
    }
  }
}

// A whole tile of kTileSide columns in scratch memory, in the background, of a
// thread's part of it.
template <class T>
__device__ __forceinline__ const T* padded_part(const T* tile) {
  return tile + threadIdx.x * 8;
}
template <class T>
__device__ __forceinline__ void bring_padded(unsigned tile, const T* part) {
  using Layout = typename SquareTile<T>::Layout;
  const unsigned to =
      tile + Layout::offset(static_cast<int>(threadIdx.x) / 8, static_cast<int>(threadIdx.x) % 8);
#pragma unroll
  for (int i = 0; i < kTileParts; ++i)
    copy_async(to + static_cast<unsigned>(i) * 16 * Layout::kRowBytes, part + 16 * i * kTileSide,
               true);
}

// 64 floats, or as many bytes, 16-byte aligned on both sides.
template <class V>
__device__ __forceinline__ void bring_floats(unsigned to, const V* from) {
  if (threadIdx.x < kTileSide / 4)
    copy_async(to + threadIdx.x * 16, from + threadIdx.x * (16 / sizeof(V)), true);
}

// A number in two parts of 16 bits.
template <class T>
struct Parts {
  T high, low;
  __device__ __forceinline__ explicit Parts(float x)
      : high(from_float<T>(x)), low(from_float<T>(x - to_float(high))) {}
};

// sums += A times a vector of 64 whose parts stand in shared memory, all high
// ones before all low ones; column_of turns what was added up into numbers of
// rows.
template <class T, Lies kA>
__device__ __forceinline__ void add_column(float (&sums)[4], unsigned a, unsigned parts,
                                           LanePlace at) {
  using Layout = typename SquareTile<T>::Layout;
  const unsigned a_lane =
      a + (kA == Lies::by_rows ? Layout::lane_by_rows(at.lane) : Layout::lane_by_columns(at.lane));
  const unsigned part = parts + static_cast<unsigned>(at.lane / 4 * 128 + at.lane % 4 * 4);
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    unsigned x[4], y[2] = {};
    if constexpr (kA == Lies::by_rows)
      ldmatrix(x, Layout::block(a_lane, at.warp, k));
    else
      ldmatrix_transposed(x, Layout::block(a_lane, k, at.warp));
    // Column 0 of B are the high parts, column 1 the low ones.
    if (at.lane < 8) {
      y[0] = *shared_pointer<const unsigned>(part + static_cast<unsigned>(k) * 32);
      y[1] = *shared_pointer<const unsigned>(part + static_cast<unsigned>(k) * 32 + 16);
    }
    mma<T>(sums, x, y[0], y[1]);
  }
}
// The lane's two rows.
__device__ __forceinline__ void column_of(float (&column)[2], const float (&sums)[4],
                                          LanePlace at) {
  column[0] = __shfl_sync(~0u, sums[0] + sums[1], at.lane & ~3);
  column[1] = __shfl_sync(~0u, sums[2] + sums[3], at.lane & ~3);
}

// Sums to a tile of f32 whose rows are 16-byte aligned and have whole multiples
// of eight columns, without shared memory: two lanes swap halves, so that each
// writes 16 bytes. `add`: on top.
__device__ __forceinline__ void store_sums_packed(float* to, std::int64_t stride, int rows,
                                                  int columns, const float (&sums)[8][4],
                                                  LanePlace at, bool add) {
  const int odd = at.lane % 2, column = at.lane % 4 / 2 * 4 + odd * 8;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = at.row(2 * r);
#pragma unroll
    for (int n = 0; n < 8; n += 2) {
      const int kept = 2 * r;
      const float a = odd ? sums[n][kept] : sums[n + 1][kept];
      const float b = odd ? sums[n][kept + 1] : sums[n + 1][kept + 1];
      const float c = __shfl_xor_sync(~0u, a, 1), d = __shfl_xor_sync(~0u, b, 1);
      float4 four = odd ? make_float4(c, d, sums[n + 1][kept], sums[n + 1][kept + 1])
                        : make_float4(sums[n][kept], sums[n][kept + 1], c, d);
      if (row >= rows || 8 * n + column >= columns) continue;
      float4* const place = reinterpret_cast<float4*>(to + row * stride + 8 * n + column);
      if (add) {
        const float4 past = *place;
        four.x += past.x, four.y += past.y, four.z += past.z, four.w += past.w;
      }
      *place = four;
    }
  }
}

// Two columns of four neighbouring blocks of eight, rounded, become eight columns of one: lane t of
// four gets block t.
__device__ __forceinline__ uint4 turn_blocks(const unsigned (&block)[4], int t) {
  const bool odd = t % 2 != 0, high = t / 2 != 0;
  const unsigned a = __shfl_xor_sync(~0u, odd ? block[0] : block[1], 1),
                 b = __shfl_xor_sync(~0u, odd ? block[2] : block[3], 1);
  // Of blocks t % 2 and 2 + t % 2: the columns of the even lane, then those of the odd one.
  const unsigned low[2] = {odd ? a : block[0], odd ? block[1] : a},
                 top[2] = {odd ? b : block[2], odd ? block[3] : b};
  const unsigned c = __shfl_xor_sync(~0u, high ? low[0] : top[0], 2),
                 d = __shfl_xor_sync(~0u, high ? low[1] : top[1], 2);
  return high ? make_uint4(c, d, top[0], top[1]) : make_uint4(low[0], low[1], c, d);
}

// A warp's sums of a tile in 16 bits, two neighbours a number: of block n and the lane's row r.
using RoundedRows = unsigned[8][2];
template <class T>
__device__ __forceinline__ void round_rows(RoundedRows& rounded, const float (&sums)[8][4]) {
#pragma unroll
  for (int n = 0; n < 8; ++n) {
#pragma unroll
    for (int r = 0; r < 2; ++r)
      rounded[n][r] = pack<T>(sums[n][2 * r], sums[n][2 * r + 1]);
  }
}

// To rows first to first + 63 of a head of 16-bit numbers which allow 16-byte accesses.
template <class T>
__device__ __forceinline__ void store_rounded(const TileRows& rows, T* head, int first, int column,
                                              const RoundedRows& rounded, LanePlace at) {
  const int t = at.lane % 4;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int token = first + at.row(2 * r);
    T* const to = head + token * rows.row + column + 8 * t;
#pragma unroll
    for (int n = 0; n < 8; n += 4) {
      const unsigned block[4] = {rounded[n][r], rounded[n + 1][r], rounded[n + 2][r],
                                 rounded[n + 3][r]};
      const uint4 eight = turn_blocks(block, t);
      if (token < rows.count && column + 8 * (n + t) < rows.width)
        *reinterpret_cast<uint4*>(to + 8 * n) = eight;
    }
  }
}

// How the kernels of this header meet rows: of any kind, all of them with 16-byte accesses, or so
// and with gradients of features rounded to bf16.
enum class Access { loose, packed, rounded };

// Gradients of features, sums, to rows first to first + 63 of a head; `rounded` and `add`, on top
// of what stands there, exclude each other.
template <Access kAccess>
__device__ __forceinline__ void store_gradients(const TileRows& rows, int b, int h, int first,
                                                int column, const float (&sums)[8][4], LanePlace at,
                                                bool rounded, bool add) {
  if constexpr (kAccess == Access::rounded) {
    RoundedRows narrow;
    round_rows<bf16>(narrow, sums);
    store_rounded(rows, rows.at<bf16>(b, h), first, column, narrow, at);
  } else if constexpr (kAccess == Access::packed) {
    store_sums_packed(rows.at<float>(b, h) + first * rows.row + column, rows.row,
                      rows.count - first, rows.width - column, sums, at, add);
  } else {
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int token = first + at.row(e), c = column + at.column(n, e);
        if (token >= rows.count || c >= rows.width) continue;
        const std::int64_t place = token * rows.row + c;
        if (rounded) {
          rows.at<bf16>(b, h)[place] = from_float<bf16>(sums[n][e]);
        } else {
          float* const to = rows.at<float>(b, h) + place;
          *to = add ? sums[n][e] + *to : sums[n][e];
        }
      }
    }
  }
}

}  // namespace fovea::cuda
