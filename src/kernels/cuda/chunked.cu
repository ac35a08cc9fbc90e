// What causal products in chunks need around their matrix products, and a softmax over slots.

#include "kernels/chunked.h"
#include "kernels/cuda/tile/packed.cuh"
#include "kernels/cuda/tile/team.cuh"

namespace fovea::cuda {

namespace {

constexpr int kThreads = 256;

// An element a thread; writes what lies right of the diagonals.
template <class T>
__global__ void __launch_bounds__(kThreads)
    keep_lower_kernel(T* x, std::int64_t rows, std::int64_t cols, std::int64_t n) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= n) return;
  const std::int64_t row = quotient(i, cols), c = i - row * cols;
  if (c > row - quotient(row, rows) * rows) x[i] = from_float<T>(0.0f);
}

// An element of all blocks a thread. Reads and writes every block once.
template <class T>
__global__ void __launch_bounds__(kThreads)
    scan_blocks_kernel(T* out, const float* in, const float* first, float* last,
                       std::int64_t blocks, std::int64_t size, std::int64_t n, bool reverse) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= n) return;
  const std::int64_t p = quotient(i, size);
  std::int64_t at = p * blocks * size + (i - p * size) + (reverse ? (blocks - 1) * size : 0);
  const std::int64_t step = reverse ? -size : size;
  float sum = first != nullptr ? first[i] : 0.0f;
  for (std::int64_t t = 0; t < blocks; ++t, at += step) {
    const float own = in[at];
    out[at] = from_float<T>(sum);
    sum += own;
  }
  if (last != nullptr) last[i] = sum;
}

struct Marks {
  const std::uint8_t* valid;
  std::int64_t sample, token, heads, tokens;
  __device__ __forceinline__ bool of(std::int64_t row) const {
    if (valid == nullptr) return true;
    const std::int64_t head = quotient(row, tokens), n = row - head * tokens;
    return valid[quotient(head, heads) * sample + n * token] != 0;
  }
};

Marks marks_of(const View& valid, const View& x) {
  return {valid.ptr<std::uint8_t>(), valid.stride[0], valid.stride[1], x.dim[1], x.dim[2]};
}

// A team a row. Reads s three times, the later ones out of the cache, writes p once.
template <int kTeam, class T>
__global__ void __launch_bounds__(kTeamBlock)
    slot_softmax_kernel(T* p, float* lse, const float* s, const Marks marks, std::int64_t rows,
                        std::int64_t cols) {
  __shared__ float warps[kTeamBlock / kWarp];
  const Team<kTeam> team(warps);
  if (team.row >= rows) return;
  T* const to = p + team.row * cols;
  if (!marks.of(team.row)) {
    for (std::int64_t j = team.lane; j < cols; j += kTeam)
      to[j] = from_float<T>(0.0f);
    if (team.lane == 0) lse[team.row] = -INFINITY;
    return;
  }
  const float* const from = s + team.row * cols;
  float top = -INFINITY, total = 0;
  for (std::int64_t j = team.lane; j < cols; j += kTeam)
    top = fmaxf(top, from[j]);
  top = team.max(top);
  for (std::int64_t j = team.lane; j < cols; j += kTeam)
    total += expf(from[j] - top);
  total = team.sum(total);
  for (std::int64_t j = team.lane; j < cols; j += kTeam)
    to[j] = from_float<T>(expf(from[j] - top) / total);
  if (team.lane == 0) lse[team.row] = top + logf(total);
}

// A team a row. Reads dp and p twice, writes ds once.
template <int kTeam, class T>
__global__ void __launch_bounds__(kTeamBlock)
    slot_softmax_backward_kernel(T* ds, const T* dp, const float* dlse, const T* p,
                                 const Marks marks, std::int64_t rows, std::int64_t cols) {
  __shared__ float warps[kTeamBlock / kWarp];
  const Team<kTeam> team(warps);
  if (team.row >= rows) return;
  const std::int64_t at = team.row * cols;
  if (!marks.of(team.row)) {
    for (std::int64_t j = team.lane; j < cols; j += kTeam)
      ds[at + j] = from_float<T>(0.0f);
    return;
  }
  float dot = 0;
  if (dp != nullptr) {
    for (std::int64_t j = team.lane; j < cols; j += kTeam)
      dot += to_float(dp[at + j]) * to_float(p[at + j]);
    dot = team.sum(dot);
  }
  const float shift = (dlse != nullptr ? dlse[team.row] : 0.0f) - dot;
  for (std::int64_t j = team.lane; j < cols; j += kTeam) {
    const float own = dp != nullptr ? to_float(dp[at + j]) : 0.0f;
    ds[at + j] = from_float<T>(to_float(p[at + j]) * (own + shift));
  }
}

}  // namespace

void keep_lower(StreamRef stream, const View& x) {
  const std::int64_t n = x.numel();
  if (n == 0) return;
  for_float(x.dtype, "keep_lower", [&](auto zero) {
    using T = decltype(zero);
    keep_lower_kernel<<<blocks_for(n, kThreads), kThreads, 0, stream_of(stream)>>>(
        x.ptr<T>(), x.dim[x.rank - 2], x.cols(), n);
    check_launch("keep_lower");
  });
}

void scan_blocks(StreamRef stream, const View& out, const View& in, const View& first,
                 const View& last, bool reverse) {
  const std::int64_t n = in.dim[0] * in.dim[2];
  if (n == 0) return;
  for (const View* x : {&in, &first, &last}) {
    if (*x && x->dtype != DType::f32) refuse("scan_blocks", x->dtype);
  }
  for_float(out.dtype, "scan_blocks", [&](auto zero) {
    using T = decltype(zero);
    scan_blocks_kernel<<<blocks_for(n, kThreads), kThreads, 0, stream_of(stream)>>>(
        out.ptr<T>(), in.ptr<const float>(), first.ptr<const float>(), last.ptr<float>(), in.dim[1],
        in.dim[2], n, reverse);
    check_launch("scan_blocks");
  });
}

void slot_softmax_forward(StreamRef stream, const View& p, const View& lse, const View& s,
                          const View& valid) {
  const std::int64_t rows = p.rows(), cols = p.cols();
  if (p.numel() == 0) return;
  for_float(p.dtype, "slot_softmax", [&](auto zero) {
    using T = decltype(zero);
    for_team(rows, cols, [&](auto team, unsigned blocks) {
      slot_softmax_kernel<decltype(team)::value, T><<<blocks, kTeamBlock, 0, stream_of(stream)>>>(
          p.ptr<T>(), lse.ptr<float>(), s.ptr<const float>(), marks_of(valid, p), rows, cols);
      check_launch("slot_softmax");
    });
  });
}

void slot_softmax_backward(StreamRef stream, const View& ds, const View& dp, const View& dlse,
                           const View& p, const View& valid) {
  const std::int64_t rows = p.rows(), cols = p.cols();
  if (p.numel() == 0) return;
  for_float(p.dtype, "slot_softmax_backward", [&](auto zero) {
    using T = decltype(zero);
    for_team(rows, cols, [&](auto team, unsigned blocks) {
      slot_softmax_backward_kernel<decltype(team)::value, T>
          <<<blocks, kTeamBlock, 0, stream_of(stream)>>>(ds.ptr<T>(), dp.ptr<const T>(),
                                                         dlse.ptr<const float>(), p.ptr<const T>(),
                                                         marks_of(valid, p), rows, cols);
      check_launch("slot_softmax_backward");
    });
  });
}

}  // namespace fovea::cuda
