#pragma once
// Tensor-core tiles of 16-bit operands: mma.sync m16n8k16, ldmatrix, cp.async and a shared-memory
// layout without bank conflicts. sm_80 instructions only. The layouts are those of PTX ISA 9.7.14.
//
// With g = lane / 4 and t = lane % 4 a lane holds
//   A [16 x 16]: (g, 2t..), (g+8, 2t..), (g, 2t+8..), (g+8, 2t+8..), two neighbours a register
//   B [16 x 8]:  (k = 2t.., n = g), (k = 2t+8.., n = g)
//   C [16 x 8]:  (g, 2t), (g, 2t+1), (g+8, 2t), (g+8, 2t+1)
// so two neighbouring C blocks, rounded to 16 bits, are the A of the next product.

#include "kernels/cuda/launch.cuh"

namespace fovea::cuda {

// The dynamic shared memory of the block, as it comes.
__device__ __forceinline__ unsigned shared_base() {
  extern __shared__ unsigned char dynamic_shared[];
  return static_cast<unsigned>(__cvta_generic_to_shared(dynamic_shared));
}

// The same from where tiles may begin (Swizzled): up to kTileAlignment - 1 bytes further.
constexpr unsigned kTileAlignment = 1024;
__device__ __forceinline__ unsigned tile_base() {
  return (shared_base() + kTileAlignment - 1) / kTileAlignment * kTileAlignment;
}

// Shared memory is addressed by 32-bit numbers throughout: no generic pointers in inner loops.
template <class V>
__device__ __forceinline__ V* shared_pointer(unsigned address) {
  return static_cast<V*>(__cvta_shared_to_generic(address));
}

__device__ __forceinline__ void ldmatrix(unsigned (&to)[4], unsigned address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void ldmatrix_transposed(unsigned (&to)[4], unsigned address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}

// c += a b, accumulated in f32.
template <class T>
__device__ __forceinline__ void mma(float (&c)[4], const unsigned (&a)[4], unsigned b0,
                                    unsigned b1) {
  static_assert(sizeof(T) == 2, "16-bit operands");
  if constexpr (__is_same(T, bf16)) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

// Two C blocks, neighbours along n, as one A block.
template <class T>
__device__ __forceinline__ void as_operand(unsigned (&a)[4], const float (&left)[4],
                                           const float (&right)[4]) {
  a[0] = pack<T>(left[0], left[1]);
  a[1] = pack<T>(left[2], left[3]);
  a[2] = pack<T>(right[0], right[1]);
  a[3] = pack<T>(right[2], right[3]);
}

// Eight C blocks side by side as the four A blocks of a warp's 16 rows.
template <class T>
__device__ __forceinline__ void as_operands(unsigned (&a)[4][4], const float (&blocks)[8][4]) {
#pragma unroll
  for (int k = 0; k < 4; ++k)
    as_operand<T>(a[k], blocks[2 * k], blocks[2 * k + 1]);
}

// Over the four lanes that hold a row of C.
__device__ __forceinline__ float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
  return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}
__device__ __forceinline__ float quad_sum(float x) {
  x += __shfl_xor_sync(~0u, x, 1);
  return x + __shfl_xor_sync(~0u, x, 2);
}

// 2^x by the special-function unit: relative error 1.4e-7, 2^-inf is 0.
__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Copies 16 bytes to shared memory in the background, or zeros where `real` is false (then `from`
// is not read).
__device__ __forceinline__ void copy_async(unsigned to, const void* from, bool real) {
  const int bytes = real ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Waits until at most `kPending` committed groups of this thread are under way.
template <int kPending>
__device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// A tile in shared memory: rows of kWidth 16-bit values whose 16-byte pieces are permuted so that
// eight rows of one piece lie in different banks. Base addresses are multiples of kAlignment.
template <int kWidth>
struct Swizzled {
  static_assert(kWidth == 16 || kWidth == 32 || kWidth % 64 == 0);
  static constexpr int kPieces = kWidth / 8, kRowBytes = kWidth * 2;
  static constexpr unsigned kAlignment = kTileAlignment;

  // Which of the up to eight pieces of a 128-byte line change places: rows of 32 bytes share a line
  // by four, rows of 64 bytes by two.
  __device__ static __forceinline__ int twist(int row) {
    return kWidth == 16 ? (row >> 2) & 1 : kWidth == 32 ? (row >> 1) & 3 : row & 7;
  }
  __device__ static __forceinline__ unsigned offset(int row, int piece) {
    return static_cast<unsigned>(row * kRowBytes + ((piece ^ twist(row)) << 4));
  }
  // Where this lane points ldmatrix for the 16 x 16 block at (0, 0) of a tile. Used as an A operand
  // [m][k], or transposed as a B operand [k][n]: registers 0,1 are the block's left half.
  __device__ static __forceinline__ unsigned lane_by_rows(int lane) {
    return offset(lane & 15, lane >> 4);
  }
  // The same for a B operand stored [n][k]: registers 0,1 are rows 0 to 7, registers 2,3 the
  // others.
  __device__ static __forceinline__ unsigned lane_by_columns(int lane) {
    return offset((lane & 7) + ((lane >> 4) << 3), (lane >> 3) & 1);
  }
  // The block at (16 row_block, 16 column_block), from `start` = tile base + a lane's offset. Rows
  // move by eights, which leaves the permutation alone; columns flip the bits above a piece pair,
  // within the line of 128 bytes, and lines follow one another.
  __device__ static __forceinline__ unsigned block(unsigned start, int row_block,
                                                   int column_block) {
    return (start ^ static_cast<unsigned>(column_block % 4 * 32)) +
           static_cast<unsigned>(column_block / 4 * 128 + row_block * 16 * kRowBytes);
  }
};

}  // namespace fovea::cuda
