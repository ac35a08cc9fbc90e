#pragma once
// The second half of column sums: partial rows in scratch memory are added to their totals.

#include "kernels/cuda/launch.cuh"

namespace fovea::cuda {

constexpr int kTotals = 3;      // at most, in one launch
constexpr int kTotalSide = 32;  // columns, and groups, of a block

struct Totals {
  float* to[kTotals];  // null: not wanted
};

// to[k][j] += the sum over p of partial[p stride + k cols + j], p < parts; k is blockIdx.y.
// One block has 32 columns of one total; 32 groups add a run of parts each, in order, and the
// groups are added in order. Reads the partials once.
template <int kSide>
__global__ void __launch_bounds__(kSide* kSide)
    add_partials_kernel(Totals totals, const float* partial, std::int64_t parts, std::int64_t cols,
                        std::int64_t stride) {
  __shared__ float sums[kSide][kSide];
  const int lane = threadIdx.x % kSide, group = threadIdx.x / kSide;
  const std::int64_t column = std::int64_t{blockIdx.x} * kSide + lane;
  float* const to = blockIdx.y == 0 ? totals.to[0] : blockIdx.y == 1 ? totals.to[1] : totals.to[2];
  if (to == nullptr) return;
  const std::int64_t run = (parts + kSide - 1) / kSide, begin = group * run,
                     end = begin + run < parts ? begin + run : parts;
  float sum = 0;
  if (column < cols) {
    const float* const from = partial + blockIdx.y * cols + column;
#pragma unroll 8
    for (std::int64_t p = begin; p < end; ++p)
      sum += from[p * stride];
  }
  sums[group][lane] = sum;
  __syncthreads();
  if (group != 0 || column >= cols) return;
  for (int g = 1; g < kSide; ++g)
    sum += sums[g][lane];
  to[column] += sum;
}

// partial [parts, count, cols]; count of the totals are looked at.
inline void add_partials(StreamRef stream, const char* launcher, Totals totals, int count,
                         const float* partial, std::int64_t parts, std::int64_t cols) {
  if (parts == 0 || cols == 0) return;
  const dim3 grid(blocks_for(cols, kTotalSide), static_cast<unsigned>(count));
  add_partials_kernel<kTotalSide><<<grid, kTotalSide * kTotalSide, 0, stream_of(stream)>>>(
      totals, partial, parts, cols, count * cols);
  check_launch(launcher);
}

}  // namespace fovea::cuda
