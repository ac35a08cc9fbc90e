// One row out of each sequence's rows.

#include "kernels/cuda/tile/reduce.cuh"
#include "kernels/pool.h"

namespace fovea::cuda {

namespace {

constexpr int kColumns = 32;  // of a block; neighbouring threads read neighbouring columns
constexpr int kSlices = 8;    // of the rows, added in their order
constexpr int kThreads = kColumns * kSlices;

// The rows of a sequence that count: those real ones in [begin, end).
struct Rows {
  const std::uint8_t* valid;  // null: all are real
  std::int64_t begin, end, count;
  __device__ __forceinline__ bool has(std::int64_t n) const {
    return n >= begin && n < end && (valid == nullptr || valid[n] != 0);
  }
};

// By the whole block: integers are added, and the largest taken, so that order does not show.
__device__ __forceinline__ Rows rows_of(const std::uint8_t* key_valid, std::int64_t b,
                                        std::int64_t length, Pool rule) {
  if (rule == Pool::first) return {nullptr, 0, 1, 1};
  if (key_valid == nullptr)
    return rule == Pool::last ? Rows{nullptr, length - 1, length, 1}
                              : Rows{nullptr, 0, length, length};
  const std::uint8_t* const valid = key_valid + b * length;
  __shared__ unsigned long long sums[kThreads / kWarp];
  __shared__ unsigned long long last;
  if (threadIdx.x == 0) last = 0;
  __syncthreads();
  unsigned long long count = 0, behind = 0;  // one more than the last real row that was seen
  for (std::int64_t n = threadIdx.x; n < length; n += kThreads) {
    if (valid[n] == 0) continue;
    ++count;
    behind = static_cast<unsigned long long>(n) + 1;
  }
  if (behind > 0) atomicMax(&last, behind);
  count = block_sum<kThreads>(count, sums);  // its barriers let every thread see `last`
  const auto real = static_cast<std::int64_t>(count), end = static_cast<std::int64_t>(last);
  if (rule == Pool::mean) return {valid, 0, length, real};
  return {valid, end > 0 ? end - 1 : 0, end, end > 0 ? 1 : 0};
}

__device__ __forceinline__ float share_of(const Rows& rows) {
  return rows.count > 0 ? 1.0f / static_cast<float>(rows.count) : 0.0f;
}

// A block has kColumns columns of one sequence. Reads the rows that count once, and key_valid once
// a block; writes out once.
template <class T>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(T* __restrict__ out, const T* __restrict__ x,
                   const std::uint8_t* __restrict__ key_valid, std::int64_t length,
                   std::int64_t cols, std::int64_t pieces, Pool rule) {
  __shared__ float slices[kSlices][kColumns];
  const std::int64_t b = blockIdx.x / pieces, column_in_block = threadIdx.x % kColumns;
  const std::int64_t column = blockIdx.x % pieces * kColumns + column_in_block;
  const int slice = static_cast<int>(threadIdx.x) / kColumns;
  const Rows rows = rows_of(key_valid, b, length, rule);
  float sum = 0;
  if (column < cols) {
    for (std::int64_t n = rows.begin + slice; n < rows.end; n += kSlices) {
      if (rows.has(n)) sum += to_float(x[(b * length + n) * cols + column]);
    }
  }
  slices[slice][column_in_block] = sum;
  __syncthreads();
  if (slice > 0 || column >= cols) return;
  float total = slices[0][column_in_block];
#pragma unroll
  for (int s = 1; s < kSlices; ++s)
    total += slices[s][column_in_block];
  out[b * cols + column] = from_float<T>(total * share_of(rows));
}

// The same blocks. Writes dx once.
template <class T>
__global__ void __launch_bounds__(kThreads)
    backward_kernel(T* __restrict__ dx, const T* __restrict__ dout,
                    const std::uint8_t* __restrict__ key_valid, std::int64_t length,
                    std::int64_t cols, std::int64_t pieces, Pool rule) {
  const std::int64_t b = blockIdx.x / pieces;
  const std::int64_t column = blockIdx.x % pieces * kColumns + threadIdx.x % kColumns;
  const Rows rows = rows_of(key_valid, b, length, rule);
  if (column >= cols) return;
  const T given = from_float<T>(to_float(dout[b * cols + column]) * share_of(rows)),
          none = from_float<T>(0.0f);
  for (std::int64_t n = threadIdx.x / kColumns; n < length; n += kSlices)
    dx[(b * length + n) * cols + column] = rows.has(n) ? given : none;
}

}  // namespace

void pool_forward(StreamRef stream, const View& out, const View& x, const View& key_valid,
                  Pool rule) {
  const std::int64_t batch = x.dim[0], length = x.dim[1], cols = x.dim[2];
  const std::int64_t pieces = (cols + kColumns - 1) / kColumns;
  if (batch * pieces == 0) return;
  for_float(x.dtype, "pool", [&](auto zero) {
    using T = decltype(zero);
    forward_kernel<<<blocks_for(batch * pieces, 1), kThreads, 0, stream_of(stream)>>>(
        static_cast<T*>(out.data), static_cast<const T*>(x.data),
        static_cast<const std::uint8_t*>(key_valid.data), length, cols, pieces, rule);
    check_launch("pool");
  });
}

void pool_backward(StreamRef stream, const View& dx, const View& dout, const View& key_valid,
                   Pool rule) {
  const std::int64_t batch = dx.dim[0], length = dx.dim[1], cols = dx.dim[2];
  const std::int64_t pieces = (cols + kColumns - 1) / kColumns;
  if (batch * pieces == 0) return;
  for_float(dx.dtype, "pool_backward", [&](auto zero) {
    using T = decltype(zero);
    backward_kernel<<<blocks_for(batch * pieces, 1), kThreads, 0, stream_of(stream)>>>(
        static_cast<T*>(dx.data), static_cast<const T*>(dout.data),
        static_cast<const std::uint8_t*>(key_valid.data), length, cols, pieces, rule);
    check_launch("pool_backward");
  });
}

}  // namespace fovea::cuda
