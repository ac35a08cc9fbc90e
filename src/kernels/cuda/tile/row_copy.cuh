#pragma once
// One row from global to shared memory in parts, in the background: the bulk copy engine on sm_90,
// 16-byte asynchronous copies before. Source: CUDA programming guide, asynchronous data copies.

#include "kernels/cuda/launch.cuh"

namespace fovea::cuda {

template <int kThreads, int kParts>
struct RowCopy {
  std::uint64_t* barriers;  // [kParts] in shared memory
  std::int64_t part;        // 16-byte units of a part; the last may be shorter
  std::int64_t units;

  __device__ __forceinline__ RowCopy(std::uint64_t* shared, std::int64_t units_of_row)
      : barriers(shared), part((units_of_row + kParts - 1) / kParts), units(units_of_row) {}
  __device__ __forceinline__ std::int64_t begin(int p) const {
    return p * part < units ? p * part : units;
  }

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  static __device__ __forceinline__ std::uint32_t address(const void* shared) {
    return static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  }
  // Every thread calls it; `to` and `from` are 16-byte aligned.
  __device__ __forceinline__ void start(void* to, const void* from) const {
    if (threadIdx.x == 0) {
      for (int p = 0; p < kParts; ++p)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(address(&barriers[p])));
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
      for (int p = 0; p < kParts; ++p) {
        const auto bytes = static_cast<std::uint32_t>((begin(p + 1) - begin(p)) * 16);
        asm volatile(
            "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address(&barriers[p])),
            "r"(bytes)
            : "memory");
        if (bytes == 0) continue;
        asm volatile(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, "
            "[%3];" ::"r"(address(static_cast<uint4*>(to) + begin(p))),
            "l"(static_cast<const uint4*>(from) + begin(p)), "r"(bytes), "r"(address(&barriers[p]))
            : "memory");
      }
    }
    __syncthreads();
  }
  // Part p is there when it returns, for the thread that calls it.
  __device__ __forceinline__ void wait(int p) const {
    std::uint32_t done = 0;
    while (done == 0) {
      asm volatile(
          "{ .reg .pred q; mbarrier.try_wait.parity.shared::cta.b64 q, [%1], 0; selp.u32 %0, 1, 0, "
          "q; }"
          : "=r"(done)
          : "r"(address(&barriers[p]))
          : "memory");
    }
  }
#else
  __device__ __forceinline__ void start(void* to, const void* from) const {
    for (std::int64_t i = threadIdx.x; i < units; i += kThreads) {
      const auto at =
          static_cast<std::uint32_t>(__cvta_generic_to_shared(static_cast<uint4*>(to) + i));
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at),
                   "l"(static_cast<const uint4*>(from) + i)
                   : "memory");
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  }
  __device__ __forceinline__ void wait(int p) const {
    if (p != 0) return;
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads();
  }
#endif
};

}  // namespace fovea::cuda
