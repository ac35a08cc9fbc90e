// Softmax cross-entropy of rows of logits.

#include "kernels/cuda/tile/map.cuh"
#include "kernels/cuda/tile/row_copy.cuh"
#include "kernels/cuda/tile/team.cuh"
#include "kernels/loss.h"

namespace fovea::cuda {

namespace {

constexpr float kLog2E = 1.4426950408889634f;
constexpr float kLowest = -1e30f;  // below every finite logit that matters; -inf would make NaN
constexpr int kUnroll = 4;         // packs in flight a thread
constexpr int kBothThreads = 512;  // two such blocks a multiprocessor: 3.1 ms; 1,024: 4.3
constexpr int kBothParts = 4;

// e^(x - top) for logits of dtype T: 16-bit ones hide the error of the fast form.
template <class T>
__device__ __forceinline__ float exp_below(float x, float top) {
  if constexpr (sizeof(T) == 4) return expf(x - top);
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(fmaf(x, kLog2E, -top * kLog2E)));
  return y;
}

// A sum of exponentials below `top`, now below `higher`. Equal ones are left alone: where a thread
// has seen -inf only, the fast exponential of their rounded difference would be infinite.
template <class T>
__device__ __forceinline__ float lowered(float total, float top, float higher) {
  return top == higher ? total : total * exp_below<T>(top, higher);
}

// Columns of a pack beyond the last: rows may be further apart than they are long.
template <int kWidth>
__device__ __forceinline__ void set_beyond(float (&x)[kWidth], std::int64_t column,
                                           std::int64_t cols, float value) {
  if (column + kWidth <= cols) return;
#pragma unroll
  for (int i = 0; i < kWidth; ++i)
    x[i] = column + i < cols ? x[i] : value;
}

// Where a row of logits finds its target and leaves its results.
struct Entries {
  const std::int32_t* targets;
  const std::int32_t* rows;
  float* loss;
  std::uint8_t* correct;
  __device__ __forceinline__ std::int64_t of(std::int64_t row) const {
    return rows != nullptr ? rows[row] : row;
  }
};

// The largest value and the sum of exponentials below it, of what a thread has seen; and whether
// something it saw comes before the target: is larger, or as large with a lower column.
template <class T, bool kCorrect>
struct Seen {
  float top = kLowest, total = 0;
  bool beaten = false;

  template <int kPacks, int kWidth>
  __device__ __forceinline__ void take(const float (&x)[kPacks][kWidth],
                                       const std::int64_t (&column)[kPacks], float at_target,
                                       std::int64_t target) {
    float highest = top;
#pragma unroll
    for (int u = 0; u < kPacks; ++u) {
      float most = x[u][0];
#pragma unroll
      for (int i = 1; i < kWidth; ++i)
        most = fmaxf(most, x[u][i]);
      if (kCorrect && most >= at_target) {
        beaten |= most > at_target;
#pragma unroll
        for (int i = 0; i < kWidth; ++i)
          beaten |= x[u][i] == at_target && column[u] + i < target;
      }
      highest = fmaxf(highest, most);
    }
    float sum = lowered<T>(total, top, highest);
#pragma unroll
    for (int u = 0; u < kPacks; ++u) {
#pragma unroll
      for (int i = 0; i < kWidth; ++i)
        sum += exp_below<T>(x[u][i], highest);
    }
    top = highest;
    total = sum;
  }
  // What all threads of the team have seen.
  template <class Team>
  __device__ __forceinline__ void merge(const Team& team) {
    const float highest = team.max(top);
    total = team.sum(lowered<T>(total, top, highest));
    top = highest;
    if constexpr (kCorrect) beaten = team.max(beaten ? 1.0f : 0.0f) > 0;
  }
  // Writes the row's results, by one thread; returns the log of the sum of exponentials.
  __device__ __forceinline__ float finish(const Entries& entries, std::int64_t at, float at_target,
                                          bool writes) const {
    const float log_total = logf(total);
    if (writes) {
      // Not lse - x: the difference of two large numbers would lose what a small loss is made of.
      entries.loss[at] = log_total + (top - at_target);
      if (entries.correct != nullptr) entries.correct[at] = !beaten && at_target == top ? 1 : 0;
    }
    return top + log_total;
  }
};

// The derivative of the pack at `column`, for a gradient of `factor`.
template <class T, int kWidth>
__device__ __forceinline__ void derive(float (&x)[kWidth], float lse, float factor,
                                       std::int64_t target, std::int64_t column) {
#pragma unroll
  for (int i = 0; i < kWidth; ++i)
    x[i] = exp_below<T>(x[i], lse);
  if (target >= column && target < column + kWidth) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i)
      x[i] -= column + i == target ? 1.0f : 0.0f;
  }
#pragma unroll
  for (int i = 0; i < kWidth; ++i)
    x[i] *= factor;
}

// A team a row. Reads the logits once.
template <int kTeam, int kWidth, class T>
__global__ void __launch_bounds__(kTeamBlock)
    forward_kernel(const Entries entries, float* lse, const T* __restrict__ logits,
                   std::int64_t rows, std::int64_t cols, std::int64_t pitch) {
  __shared__ float warps[kTeamBlock / kWarp];
  const Team<kTeam> team(warps);
  if (team.row >= rows) return;
  const std::int64_t at = entries.of(team.row), target = entries.targets[at];
  if (target < 0) {
    if (team.lane == 0) {
      entries.loss[at] = 0;
      if (entries.correct != nullptr) entries.correct[at] = 0;
      lse[team.row] = 0;
    }
    return;
  }
  const T* const from = logits + team.row * pitch;
  const float at_target = to_float(from[target]);
  const std::int64_t packs = (cols + kWidth - 1) / kWidth;
  Seen<T, true> seen;
  for (std::int64_t pack = team.lane; pack < packs; pack += kTeam * kUnroll) {
    Packed<T, kWidth> in[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (pack + u * kTeam < packs) in[u].load(from + (pack + u * kTeam) * kWidth);
    }
    float x[kUnroll][kWidth];
    std::int64_t column[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      column[u] = (pack + u * kTeam) * kWidth;
      if (pack + u * kTeam < packs) {
        in[u].unpack(x[u]);
        set_beyond(x[u], column[u], cols, -INFINITY);
        continue;
      }
#pragma unroll
      for (int i = 0; i < kWidth; ++i)
        x[u][i] = -INFINITY;
    }
    seen.take(x, column, at_target, target);
  }
  seen.merge(team);
  const float all = seen.finish(entries, at, at_target, team.lane == 0);
  if (team.lane == 0) lse[team.row] = all;
}

// A team a row. Reads the logits once, writes dlogits and what lies between its rows once; it may
// be the same memory.
template <int kTeam, int kWidth, class D, class T>
__global__ void __launch_bounds__(kTeamBlock)
    backward_kernel(D* dlogits, const T* logits, const float* lse, const Entries entries,
                    const float* dloss, std::int64_t rows, std::int64_t cols, std::int64_t pitch,
                    std::int64_t to_pitch) {
  const Team<kTeam> team(nullptr);
  if (team.row >= rows) return;
  const std::int64_t target = entries.targets[entries.of(team.row)], packs = to_pitch / kWidth,
                     filled = (cols + kWidth - 1) / kWidth;
  const float factor = dloss != nullptr ? *dloss : 1.0f, all = lse[team.row];
  const T* const from = logits + team.row * pitch;
  D* const to = dlogits + team.row * to_pitch;
  for (std::int64_t pack = team.lane; pack < packs; pack += kTeam * kUnroll) {
    Packed<T, kWidth> in[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (pack + u * kTeam < filled) in[u].load(from + (pack + u * kTeam) * kWidth);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const std::int64_t column = (pack + u * kTeam) * kWidth;
      if (column >= packs * kWidth) continue;
      float x[kWidth] = {};
      if (target >= 0 && column < filled * kWidth) {
        in[u].unpack(x);
        derive<T>(x, all, factor, target, column);
        set_beyond(x, column, cols, 0.0f);
      }
      store_packed(to + column, x);
    }
  }
}

// A block that stands in for a team.
struct Block {
  float* shared;
  __device__ __forceinline__ float sum(float value) const {
    return block_sum<kBothThreads>(value, shared);
  }
  __device__ __forceinline__ float max(float value) const {
    return block_max<kBothThreads>(value, shared);
  }
};

// A block a row, which waits in shared memory between the two halves. Reads the logits once and
// writes their gradient over them once.
template <class T>
__global__ void __launch_bounds__(kBothThreads, 2)
    both_kernel(T* logits, float* lse, const Entries entries, const float* dloss, std::int64_t cols,
                std::int64_t pitch) {
  extern __shared__ uint4 held[];
  __shared__ float warps[kBothThreads / kWarp];
  __shared__ std::uint64_t barriers[kBothParts];
  constexpr int kUnits = kVector * static_cast<int>(sizeof(T)) / 16;  // 16-byte units of a pack
  const Block block{warps};
  const std::int64_t row = blockIdx.x, at = entries.of(row), target = entries.targets[at];
  T* const mine = logits + row * pitch;
  const std::int64_t packs = (cols + kVector - 1) / kVector, all_packs = pitch / kVector;
  const int lane = static_cast<int>(threadIdx.x);
  if (target < 0) {
    for (std::int64_t i = lane; i < all_packs * kUnits; i += kBothThreads)
      reinterpret_cast<uint4*>(mine)[i] = make_uint4(0, 0, 0, 0);
    if (lane == 0) {
      entries.loss[at] = 0;
      lse[row] = 0;
    }
    return;
  }
  const RowCopy<kBothThreads, kBothParts> copy(barriers, packs * kUnits);
  copy.start(held, mine);
  const float at_target = to_float(mine[target]), factor = dloss != nullptr ? *dloss : 1.0f;
  const T* const from = reinterpret_cast<const T*>(held);
  const auto part_end = [&](int p) {  // whole packs that are there after part p
    return p + 1 == kBothParts ? packs : copy.begin(p + 1) / kUnits;
  };
  Seen<T, false> seen;
  std::int64_t begin = 0;
  for (int p = 0; p < kBothParts; ++p) {
    copy.wait(p);
    const std::int64_t end = part_end(p);
#pragma unroll 2
    for (std::int64_t pack = begin + lane; pack < end; pack += kBothThreads) {
      float x[1][kVector];
      const std::int64_t column[1] = {pack * kVector};
      load8(x[0], from + pack * kVector);
      set_beyond(x[0], column[0], cols, -INFINITY);
      seen.take(x, column, at_target, target);
    }
    begin = end;
  }
  seen.merge(block);
  const float all = seen.finish(entries, at, at_target, lane == 0);
  if (lane == 0) lse[row] = all;
#pragma unroll 4
  for (std::int64_t pack = lane; pack < packs; pack += kBothThreads) {
    float x[kVector];
    load8(x, from + pack * kVector);
    derive<T>(x, all, factor, target, pack * kVector);
    set_beyond(x, pack * kVector, cols, 0.0f);
    store8(mine + pack * kVector, x);
  }
  const float none[kVector] = {};
  for (std::int64_t pack = packs + lane; pack < all_packs; pack += kBothThreads)
    store8(mine + pack * kVector, none);
}

// to[rows[r],:] = alpha from[r,:]; one pack a thread. Reads and writes each row once.
template <int kWidth, class T>
__global__ void __launch_bounds__(kMapThreads)
    scaled_rows_kernel(T* to, const T* from, const std::int32_t* rows, const float* single,
                       const double* twice, std::int64_t n, std::int64_t packs) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kMapThreads + threadIdx.x;
  if (i >= n) return;
  const std::int64_t row = quotient(i, packs), pack = i - row * packs;
  const float alpha = single != nullptr ? *single : static_cast<float>(*twice);
  const std::int64_t out = rows != nullptr ? rows[row] : row;
  Packed<T, kWidth> in;
  in.load(from + i * kWidth);
  float x[kWidth];
  in.unpack(x);
#pragma unroll
  for (int k = 0; k < kWidth; ++k)
    x[k] *= alpha;
  store_packed(to + (out * packs + pack) * kWidth, x);
}

Entries entries_of(const View& loss, const View& correct, const View& targets, const View& rows) {
  return {targets.ptr<std::int32_t>(), rows.ptr<std::int32_t>(), loss.ptr<float>(),
          correct.ptr<std::uint8_t>()};
}

// Whether rows can be read in packs; the last one may hold columns beyond the row's.
bool has_packs(const View& rows) {
  return is_aligned(rows.data) && rows.stride[0] % kVector == 0;
}

std::int64_t held_bytes(const View& logits) {
  return (logits.cols() + kVector - 1) / kVector * kVector * size_of(logits.dtype);
}

// Whether rows of logits can wait in shared memory.
bool fits_block(const View& logits) {
  int device = 0, most = 0;
  check_call(cudaGetDevice(&device), "cross_entropy");
  check_call(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
             "cross_entropy");
  constexpr std::int64_t kOwn = 1024;  // of the reductions and barriers
  return has_packs(logits) && held_bytes(logits) + kOwn <= most;
}

}  // namespace

void cross_entropy_forward(StreamRef stream, const View& loss, const View& correct, const View& lse,
                           const View& logits, const View& targets, const View& rows) {
  const std::int64_t m = logits.rows(), cols = logits.cols();
  if (m == 0 || cols == 0) return;
  const Entries entries = entries_of(loss, correct, targets, rows);
  for_float(logits.dtype, "cross_entropy", [&](auto zero) {
    using T = decltype(zero);
    for_team(m, cols, [&](auto team, unsigned blocks) {
      const auto go = [&](auto kernel) {
        kernel<<<blocks, kTeamBlock, 0, stream_of(stream)>>>(
            entries, lse.ptr<float>(), logits.ptr<T>(), m, cols, logits.stride[0]);
        check_launch("cross_entropy");
      };
      if (has_packs(logits))
        go(forward_kernel<decltype(team)::value, kVector, T>);
      else
        go(forward_kernel<decltype(team)::value, 1, T>);
    });
  });
}

void cross_entropy_backward(StreamRef stream, const View& dlogits, const View& logits,
                            const View& lse, const View& targets, const View& rows,
                            const View& dloss) {
  const std::int64_t m = logits.rows(), cols = logits.cols();
  if (m == 0 || cols == 0) return;
  constexpr const char* kName = "cross_entropy_backward";
  const Entries entries = entries_of({}, {}, targets, rows);
  for_float(logits.dtype, kName, [&](auto a) {
    for_float(dlogits.dtype, kName, [&](auto b) {
      using T = decltype(a);
      using D = decltype(b);
      for_team(m, cols, [&](auto team, unsigned blocks) {
        const auto go = [&](auto kernel) {
          kernel<<<blocks, kTeamBlock, 0, stream_of(stream)>>>(
              dlogits.ptr<D>(), logits.ptr<T>(), lse.ptr<float>(), entries, dloss.ptr<float>(), m,
              cols, logits.stride[0], dlogits.stride[0]);
          check_launch(kName);
        };
        if (has_packs(logits) && has_packs(dlogits))
          go(backward_kernel<decltype(team)::value, kVector, D, T>);
        else
          go(backward_kernel<decltype(team)::value, 1, D, T>);
      });
    });
  });
}

void cross_entropy_both(StreamRef stream, const View& loss, const View& lse, const View& logits,
                        const View& targets, const View& rows, const View& dloss) {
  const std::int64_t m = logits.rows(), cols = logits.cols();
  if (m == 0 || cols == 0) return;
  // A warp has a short row: a block each would cost more than a second pass.
  if (cols <= kTeamWarpMost || !fits_block(logits)) {
    cross_entropy_forward(stream, loss, View{}, lse, logits, targets, rows);
    cross_entropy_backward(stream, logits, logits, lse, targets, rows, dloss);
    return;
  }
  for_float(logits.dtype, "cross_entropy_both", [&](auto zero) {
    using T = decltype(zero);
    launch_shared(stream, "cross_entropy_both", both_kernel<T>, static_cast<unsigned>(m),
                  kBothThreads, static_cast<unsigned>(held_bytes(logits)), logits.ptr<T>(),
                  lse.ptr<float>(), entries_of(loss, View{}, targets, rows), dloss.ptr<float>(),
                  cols, logits.stride[0]);
  });
}

void scaled_rows_forward(StreamRef stream, const View& to, const View& from, const View& rows,
                         const View& alpha) {
  const std::int64_t n = from.numel(), cols = from.cols();
  if (n == 0) return;
  if (alpha.dtype != DType::f32 && alpha.dtype != DType::f64) refuse("scaled_rows", alpha.dtype);
  const bool single = alpha.dtype == DType::f32;
  for_float(from.dtype, "scaled_rows", [&](auto zero) {
    using T = decltype(zero);
    const auto go = [&](int width, auto kernel) {
      kernel<<<blocks_for(n / width, kMapThreads), kMapThreads, 0, stream_of(stream)>>>(
          to.ptr<T>(), from.ptr<T>(), rows.ptr<std::int32_t>(),
          single ? alpha.ptr<float>() : nullptr, single ? nullptr : alpha.ptr<double>(), n / width,
          cols / width);
      check_launch("scaled_rows");
    };
    if (is_packable(from, cols) && is_aligned(to.data))
      go(kVector, scaled_rows_kernel<kVector, T>);
    else
      go(1, scaled_rows_kernel<1, T>);
  });
}

}  // namespace fovea::cuda
