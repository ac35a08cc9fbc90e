// One number for the bits of a buffer.

#include "kernels/cuda/tile/reduce.cuh"
#include "kernels/fingerprint.h"

namespace fovea::cuda {

namespace {

constexpr int kThreads = 256;
constexpr unsigned kMostBlocks = 1056;  // eight for each multiprocessor of an H100

// Reads x once. Integers are added, so atomics leave no trace of their order.
__global__ void __launch_bounds__(kThreads)
    fingerprint_kernel(unsigned long long* out, const std::uint32_t* x, std::int64_t words) {
  __shared__ unsigned long long warps[kThreads / kWarp];
  unsigned long long sum = 0;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < words;
       i += std::int64_t{gridDim.x} * kThreads) {
    sum += fingerprint_of(static_cast<std::uint64_t>(i), x[i]);
  }
  sum = block_sum<kThreads>(sum, warps);
  if (threadIdx.x == 0) atomicAdd(out, sum);
}

}  // namespace

void fingerprint(StreamRef stream, const View& out, const View& x) {
  if (x.dtype != DType::f32 && x.dtype != DType::f64) refuse("fingerprint", x.dtype);
  check_call(cudaMemsetAsync(out.data, 0, sizeof(unsigned long long), stream_of(stream)),
             "fingerprint");
  const std::int64_t words = x.numel() * (x.dtype == DType::f64 ? 2 : 1);
  if (words == 0) return;
  const unsigned wanted = blocks_for(words, kThreads);
  const unsigned blocks = wanted < kMostBlocks ? wanted : kMostBlocks;
  fingerprint_kernel<<<blocks, kThreads, 0, stream_of(stream)>>>(
      static_cast<unsigned long long*>(out.data), static_cast<const std::uint32_t*>(x.data), words);
  check_launch("fingerprint");
}

}  // namespace fovea::cuda
