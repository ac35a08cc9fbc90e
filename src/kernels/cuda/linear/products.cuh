#pragma once
// Products of whole tiles of 16-bit numbers, many at once, and tiles that are brought in meanwhile.
//
// A block of four warps begins a group of products, adds them and ends the group. sm_90a runs them
// in the background, as products of the warpgroup on tiles in shared memory; elsewhere they are
// done when they are added. Tiles are SquareTile<T>'s, sums those of tile.cuh.

#include "kernels/cuda/linear/tile.cuh"
#include "kernels/cuda/tile/wgmma.cuh"

namespace fovea::cuda {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define FOVEA_WARPGROUP_PRODUCTS 1
#else
#define FOVEA_WARPGROUP_PRODUCTS 0
#endif

// The warp's 16 rows of a tile as first operand, in registers.
using HeldRows = unsigned[4][4];

// The kernels of this header keep no static shared memory, so that the dynamic one is aligned.
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
template <class T>
__device__ __forceinline__ void hold(HeldRows& rows, const float (&sums)[8][4]) {
#pragma unroll
  for (int k = 0; k < 4; ++k)
    as_operand<T>(rows[k], sums[2 * k], sums[2 * k + 1]);
}

__device__ __forceinline__ void begin_products() {
#if FOVEA_WARPGROUP_PRODUCTS
  wgmma_fence();
#endif
}

// sums += A B.
template <class T, Lies kA, Lies kB>
__device__ __forceinline__ void add_product(float (&sums)[8][4], unsigned a, unsigned b,
                                            LanePlace at) {
#if FOVEA_WARPGROUP_PRODUCTS
  constexpr Walk kWalkA = kA == Lies::by_rows ? Walk::along_k : Walk::across_k;
  constexpr Walk kWalkB = kB == Lies::by_columns ? Walk::along_k : Walk::across_k;
#pragma unroll
  for (unsigned k = 0; k < 4; ++k)
    wgmma<T, kWalkA, kWalkB>(sums, operand_at(a + k * (kWalkA == Walk::along_k ? 32 : 2048)),
                             operand_at(b + k * (kWalkB == Walk::along_k ? 32 : 2048)));
#else
  SquareTile<T>::template product<kA, kB>(sums, a, b, at);
#endif
}
template <class T, Lies kB>
__device__ __forceinline__ void add_product(float (&sums)[8][4], const HeldRows& a, unsigned b,
                                            LanePlace at) {
#if FOVEA_WARPGROUP_PRODUCTS
  constexpr Walk kWalkB = kB == Lies::by_columns ? Walk::along_k : Walk::across_k;
#pragma unroll
  for (unsigned k = 0; k < 4; ++k)
    wgmma<T, kWalkB>(sums, a[k], operand_at(b + k * (kWalkB == Walk::along_k ? 32 : 2048)));
#else
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

template <class X>
__device__ __forceinline__ void keep_used(X& x) {
  keep(x);
}
template <int kCount>
__device__ __forceinline__ void keep_used(float (&x)[kCount][8][4]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i)
    keep(x[i]);
}
template <int kCount>
__device__ __forceinline__ void keep_used(HeldRows (&x)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i)
    keep(x[i]);
}

// `used`: every array of sums and every held operand of the group.
template <class... Used>
__device__ __forceinline__ void end_products(Used&... used) {
#if FOVEA_WARPGROUP_PRODUCTS
  wgmma_commit();
  wgmma_wait<0>();
  (keep_used(used), ...);
#endif
}

// What this thread brought in or wrote is seen by products of the block after the barrier.
template <int kPending>
__device__ __forceinline__ void await_tiles() {
  wait_copies<kPending>();
#if FOVEA_WARPGROUP_PRODUCTS
  wgmma_written();
#endif
  __syncthreads();
}

// A thread's part of a tile that is brought in: piece threadIdx % 8 of the rows threadIdx / 8 + 16
// i.
constexpr int kTileParts = kTileSide * 8 / kTileThreads;

// Which of the thread's rows are real, bit i: those of tokens first to first + 63 that exist and
// have real(token). Asked for once, not for every tile of the same tokens.
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

// load_tile without factors, in the background: rows that are not real are zero and not read. Rows
// that do not allow 16-byte accesses are copied at once, by a loop that is kept short: kernels that
// bring in many tiles must fit the instruction cache.
template <class T>
__device__ __forceinline__ void bring_tile(unsigned tile, const TileRows& rows, const T* head,
                                           int first, int column, unsigned real) {
  using Layout = typename SquareTile<T>::Layout;
  const int row = static_cast<int>(threadIdx.x) / 8, piece = static_cast<int>(threadIdx.x) % 8;
  const int c = column + piece * 8;
  const unsigned to = tile + Layout::offset(row, piece);
  const T* from = head + (first + row) * rows.row + c;
  if (c >= rows.width) real = 0;
  if (rows.packed) {
#pragma unroll
    for (int i = 0; i < kTileParts; ++i)
      copy_async(to + static_cast<unsigned>(i) * 16 * Layout::kRowBytes, from + 16 * i * rows.row,
                 (real >> i & 1) != 0);
    return;
  }
#pragma unroll 1
  for (int i = 0; i < kTileParts * 8; ++i) {
    const int e = i % 8;
    const bool exists = (real >> (i / 8) & 1) != 0 && c + e < rows.width;
    *shared_pointer<T>(to + static_cast<unsigned>(i / 8 * 16 * Layout::kRowBytes + e * 2)) =
        exists ? from[i / 8 * 16 * rows.row + e] : from_float<T>(0.0f);
  }
}

// load_padded in the background.
template <class T>
__device__ __forceinline__ void bring_padded(unsigned tile, const T* from, std::int64_t stride) {
  using Layout = typename SquareTile<T>::Layout;
  const int row = static_cast<int>(threadIdx.x) / 8, piece = static_cast<int>(threadIdx.x) % 8;
  const unsigned to = tile + Layout::offset(row, piece);
  from += row * stride + piece * 8;
#pragma unroll
  for (int i = 0; i < kTileParts; ++i)
    copy_async(to + static_cast<unsigned>(i) * 16 * Layout::kRowBytes, from + 16 * i * stride,
               true);
}

// 64 floats, 16-byte aligned on both sides.
__device__ __forceinline__ void bring_floats(unsigned to, const float* from) {
  if (threadIdx.x < kTileSide / 4) copy_async(to + threadIdx.x * 16, from + threadIdx.x * 4, true);
}

// Sums to a tile of f32 whose rows are 16-byte aligned and have whole multiples of eight columns,
// without shared memory: two lanes swap halves, so that each writes 16 bytes. `add`: on top.
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

// Sums to rows first to first + 63 of a head of f32.
__device__ __forceinline__ void store_floats(const TileRows& rows, float* head, int first,
                                             int column, const float (&sums)[8][4], LanePlace at,
                                             bool add) {
  if (rows.packed)
    return store_sums_packed(head + first * rows.row + column, rows.row, rows.count - first,
                             rows.width - column, sums, at, add);
#pragma unroll
  for (int n = 0; n < 8; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int token = first + at.row(e), c = column + at.column(n, e);
      if (token >= rows.count || c >= rows.width) continue;
      float* const place = head + token * rows.row + c;
      *place = add ? sums[n][e] + *place : sums[n][e];
    }
  }
}

}  // namespace fovea::cuda
