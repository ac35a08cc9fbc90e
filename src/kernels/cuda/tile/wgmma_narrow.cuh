#pragma once
// Warpgroup products (tile/wgmma.cuh) whose second operand has less than 64 columns, or narrow
// rows.

#include "kernels/cuda/tile/wgmma.cuh"

namespace fovea::cuda {

// operand_at for tiles of rows of 64 bytes (Swizzled<32>) and 128 bytes (Swizzled<64>).
template <int kRowBytes>
__device__ __forceinline__ unsigned long long operand_of_rows(unsigned address) {
  static_assert(kRowBytes == 64 || kRowBytes == 128);
  return (static_cast<unsigned long long>(address & 0x3ffff) >> 4) | (1ull << 16) |
         (static_cast<unsigned long long>(8 * kRowBytes >> 4) << 32) |
         ((kRowBytes == 64 ? 2ull : 1ull) << 62);
}

// d += a b, the 16 columns of a in registers.
template <class T, Walk kB>
__device__ __forceinline__ void wgmma(float (&d)[4][4], const unsigned (&a)[4],
                                      unsigned long long b) {
  FOVEA_WGMMA("m64n32k16", FOVEA_REGISTERS_32, FOVEA_SUMS_32("+f", d),
              "{%16, %17, %18, %19}, %20, 1, 1, 1, %21;", "r"(a[0]), "r"(a[1]), "r"(a[2]),
              "r"(a[3]), "l"(b), "n"(static_cast<int>(kB)));
}

// d = a b, or d += a b with kAdd; both in shared memory.
template <class T, bool kAdd, Walk kA, Walk kB>
__device__ __forceinline__ void wgmma_into(float (&d)[4][4], unsigned long long a,
                                           unsigned long long b) {
  FOVEA_WGMMA("m64n32k16", FOVEA_REGISTERS_32, FOVEA_SUMS_32("+f", d),
              "%16, %17, %18, 1, 1, %19, %20;", "l"(a), "l"(b), "n"(kAdd ? 1 : 0),
              "n"(static_cast<int>(kA)), "n"(static_cast<int>(kB)));
}
template <class T, bool kAdd, Walk kA, Walk kB>
__device__ __forceinline__ void wgmma_into(float (&d)[2][4], unsigned long long a,
                                           unsigned long long b) {
  FOVEA_WGMMA("m64n16k16", FOVEA_REGISTERS_16, FOVEA_SUMS_16("+f", d),
              "%8, %9, %10, 1, 1, %11, %12;", "l"(a), "l"(b), "n"(kAdd ? 1 : 0),
              "n"(static_cast<int>(kA)), "n"(static_cast<int>(kB)));
}
template <class T, bool kAdd, Walk kA, Walk kB>
__device__ __forceinline__ void wgmma_into(float (&d)[8][4], unsigned long long a,
                                           unsigned long long b) {
  if constexpr (kAdd)
    wgmma<T, kA, kB>(d, a, b);
  else
    wgmma_first<T, kA, kB>(d, a, b);
}

}  // namespace fovea::cuda
