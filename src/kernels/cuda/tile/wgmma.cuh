#pragma once
// Warpgroup products of sm_90a (PTX ISA 9.7.15): four warps multiply 64 rows at once, in the
// background, with the second operand (and, where wanted, the first) in shared memory; and the
// shared-memory barriers and register shares of blocks whose warps have different jobs.
//
// Tiles in shared memory are Swizzled<64> (tile/mma.cuh): rows of 128 bytes, the 128-byte
// permutation of the hardware. Accumulators [64 x 64] of a warp are its 16 rows in the C layout of
// mma.cuh, d[n] the columns 8 n to 8 n + 7; register operands are its A layout.
//
// Order: registers that a product reads or accumulates are fenced (wgmma_fence) before it is issued
// and untouched until its group was waited for; keep() stops the compiler from moving their other
// uses across that wait. Shared memory that threads wrote needs wgmma_written() by the writers
// before the barrier after which others multiply it.

#include "kernels/cuda/tile/mma.cuh"

namespace fovea::cuda {

// Which index of an operand is contiguous in its tile: rows of the tile are the operand's rows or
// columns (A [m][k] and B^T [n][k]: along_k), or the summed index (A^T [k][m], B [k][n]: across_k).
enum class Walk { along_k = 0, across_k = 1 };

// The block of 16 summed indices at `address` of a tile: `address` is the tile's base plus 32 bytes
// a block along k, or 16 rows a block across k. Eight rows are 1024 bytes.
__device__ __forceinline__ constexpr unsigned long long operand_at(unsigned address) {
  return (static_cast<unsigned long long>(address & 0x3ffff) >> 4) | (1ull << 16) |
         (static_cast<unsigned long long>(1024 >> 4) << 32) | (1ull << 62);
}

__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Waits until at most `kPending` committed groups are under way.
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// What this thread wrote to shared memory (cp.async that it waited for included) is visible to
// products that come later.
__device__ __forceinline__ void wgmma_written() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
template <int kN>
__device__ __forceinline__ void keep(float (&d)[kN][4]) {
#pragma unroll
  for (int n = 0; n < kN; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e)
      asm volatile("" : "+f"(d[n][e])::"memory");
  }
}
__device__ __forceinline__ void keep(unsigned (&a)[4][4]) {
#pragma unroll
  for (int k = 0; k < 4; ++k) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      asm volatile("" : "+r"(a[k][i])::"memory");
  }
}

// The body of a function for one product, of 16-bit numbers T, as PTX wants it: `shape` is its
// size, `registers` and `sums` (below) are what it adds up in, `rest` goes on with the operands
// that follow. A macro, since asm wants its text and its operands spelt out.
// clang-format off
#define FOVEA_WGMMA(shape, registers, sums, rest, ...)                                           \
  if constexpr (__is_same(T, bf16))                                                              \
    asm volatile("wgmma.mma_async.sync.aligned." shape ".f32.bf16.bf16 {" registers "}, " rest   \
                 : sums : __VA_ARGS__);                                                          \
  else                                                                                           \
    asm volatile("wgmma.mma_async.sync.aligned." shape ".f32.f16.f16 {" registers "}, " rest     \
                 : sums : __VA_ARGS__)
// clang-format on
// The sums d of 16, 32 or 64 columns as operands with the constraint `as`, and their registers.
#define FOVEA_SUMS_OF(as, d) as(d[0]), as(d[1]), as(d[2]), as(d[3])
#define FOVEA_SUMS_16(as, d) FOVEA_SUMS_OF(as, (d)[0]), FOVEA_SUMS_OF(as, (d)[1])
#define FOVEA_SUMS_32(as, d) \
  FOVEA_SUMS_16(as, d), FOVEA_SUMS_OF(as, (d)[2]), FOVEA_SUMS_OF(as, (d)[3])
#define FOVEA_SUMS_64(as, d)                                                  \
  FOVEA_SUMS_32(as, d), FOVEA_SUMS_OF(as, (d)[4]), FOVEA_SUMS_OF(as, (d)[5]), \
      FOVEA_SUMS_OF(as, (d)[6]), FOVEA_SUMS_OF(as, (d)[7])
#define FOVEA_REGISTERS_16 "%0, %1, %2, %3, %4, %5, %6, %7"
#define FOVEA_REGISTERS_32 FOVEA_REGISTERS_16 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define FOVEA_REGISTERS_64 \
  FOVEA_REGISTERS_32       \
  ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"

// d = a b, the 16 columns of a in registers.
template <class T, Walk kB>
__device__ __forceinline__ void wgmma_first(float (&d)[8][4], const unsigned (&a)[4],
                                            unsigned long long b) {
  FOVEA_WGMMA("m64n64k16", FOVEA_REGISTERS_64, FOVEA_SUMS_64("=f", d),
              "{%32, %33, %34, %35}, %36, 0, 1, 1, %37;", "r"(a[0]), "r"(a[1]), "r"(a[2]),
              "r"(a[3]), "l"(b), "n"(static_cast<int>(kB)));
}

// d += a b, the 16 columns of a in registers.
template <class T, Walk kB>
__device__ __forceinline__ void wgmma(float (&d)[8][4], const unsigned (&a)[4],
                                      unsigned long long b) {
  FOVEA_WGMMA("m64n64k16", FOVEA_REGISTERS_64, FOVEA_SUMS_64("+f", d),
              "{%32, %33, %34, %35}, %36, 1, 1, 1, %37;", "r"(a[0]), "r"(a[1]), "r"(a[2]),
              "r"(a[3]), "l"(b), "n"(static_cast<int>(kB)));
}

// d = a b, both in shared memory.
template <class T, Walk kA, Walk kB>
__device__ __forceinline__ void wgmma_first(float (&d)[8][4], unsigned long long a,
                                            unsigned long long b) {
  FOVEA_WGMMA("m64n64k16", FOVEA_REGISTERS_64, FOVEA_SUMS_64("=f", d),
              "%32, %33, 0, 1, 1, %34, %35;", "l"(a), "l"(b), "n"(static_cast<int>(kA)),
              "n"(static_cast<int>(kB)));
}

// d += a b, both in shared memory.
template <class T, Walk kA, Walk kB>
__device__ __forceinline__ void wgmma(float (&d)[8][4], unsigned long long a,
                                      unsigned long long b) {
  FOVEA_WGMMA("m64n64k16", FOVEA_REGISTERS_64, FOVEA_SUMS_64("+f", d),
              "%32, %33, 1, 1, 1, %34, %35;", "l"(a), "l"(b), "n"(static_cast<int>(kA)),
              "n"(static_cast<int>(kB)));
}

// Kernels that serve all architectures begin a group of products, add them and end the group:
// sm_90a runs them in the background; elsewhere they are done when they are added (mma.cuh), and
// these functions do nothing.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define FOVEA_WARPGROUP_PRODUCTS 1
#else
#define FOVEA_WARPGROUP_PRODUCTS 0
#endif

__device__ __forceinline__ void begin_products() {
#if FOVEA_WARPGROUP_PRODUCTS
  wgmma_fence();
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
__device__ __forceinline__ void keep_used(unsigned (&x)[kCount][4][4]) {
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

// Four 8 x 8 blocks from registers in the A layout to where lane_by_rows points.
__device__ __forceinline__ void stmatrix(unsigned address, const unsigned (&a)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3])
               : "memory");
}

// A warp arrives at a barrier by one lane, or by all of them for racecheck, which does not follow
// what the others hand to that one (cmake -DFOVEA_RACECHECK=ON).
#ifdef FOVEA_RACECHECK
constexpr int kArrivalsOfWarp = 32;
#else
constexpr int kArrivalsOfWarp = 1;
#endif

// A barrier in shared memory, 8 bytes: its turn 0, 1, 2, ... ends when so many warps, or threads
// that stand for one, have arrived. What threads did before they arrived is visible to those that
// waited for the turn.
__device__ __forceinline__ void init_barrier(unsigned barrier, int warps) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier),
               "r"(warps * kArrivalsOfWarp)
               : "memory");
}
// After the warp's work.
__device__ __forceinline__ void arrive_warp(unsigned barrier) {
  __syncwarp();
  if (kArrivalsOfWarp == 32 || threadIdx.x % 32 == 0)
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// One thread in a warp's place.
__device__ __forceinline__ void arrive_alone(unsigned barrier) {
  if constexpr (kArrivalsOfWarp == 1)
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
  else
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "n"(kArrivalsOfWarp)
                 : "memory");
}
// The same; the turn also waits for a bulk copy of so many bytes.
template <unsigned kBytes>
__device__ __forceinline__ void arrive_alone_for(unsigned barrier) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "n"(kBytes)
               : "memory");
  if constexpr (kArrivalsOfWarp > 1)
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
                 "n"(kArrivalsOfWarp - 1)
                 : "memory");
}
// Waits for the end of `turn`, which is the current one or the one before.
__device__ __forceinline__ void wait_turn(unsigned barrier, int turn) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}" ::"r"(barrier),
      "r"(turn & 1)
      : "memory");
}
// A turn of a ring: which place of it, and how often it went round.
template <int kPlaces>
struct Ring {
  int place = 0, round = 0;
  __device__ __forceinline__ void advance() {
    if (++place == kPlaces) place = 0, ++round;
  }
};

// All 128 threads of a warpgroup; `id` 1 to 15.
__device__ __forceinline__ void sync_warpgroup(int id) {
  asm volatile("bar.sync %0, 128;" ::"r"(id) : "memory");
}

// Registers a thread of this warpgroup has from here on. The block's sum stays what it started
// with.
template <int kRegisters>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void leave_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace fovea::cuda
