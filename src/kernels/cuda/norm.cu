// Layer norm and RMS norm, with the residual addition before and its gradient after.

#include "kernels/bias.h"
#include "kernels/cuda/tile/packed.cuh"
#include "kernels/cuda/tile/partials.cuh"
#include "kernels/cuda/tile/team.cuh"
#include "kernels/norm.h"

namespace fovea::cuda {

namespace {

constexpr int kForwardThreads = 256;
constexpr int kForwardBlocks = 8;      // a multiprocessor; calibration's choice for 768 columns
constexpr int kBackwardThreads = 384;  // up to 768 columns, calibration's choice; 256 beyond
constexpr int kSlabRows = 128;         // of one partial sum of the plain path

// RMS norm has no mean, beta or dbeta; null pointers mean "absent" or "not wanted".
template <class T>
struct Forward {
  T *y, *sum;
  float *mean, *rstd;
  const T *x, *branch, *gamma, *beta;
  std::int64_t rows, cols;
  float eps;
  bool centred;
};

template <class T>
struct Backward {
  T* dx;
  const T *dy, *dsum, *x, *gamma;
  const float *mean, *rstd;
  float* partial;  // [blocks, 2 or 3, cols]: dgamma, dbeta and column sums of dx; null: not wanted
  std::int64_t rows, cols;
  bool centred;
};

// The sum over the threads that share a row: some of a warp, which may be alone in this turn of the
// loop over rows, or the block.
template <int kTeam>
__device__ __forceinline__ float team_sum(float value, float* shared) {
  if constexpr (kTeam > kWarp) {
    return block_sum<kTeam>(value, shared);
  } else {
    const unsigned first = threadIdx.x % kWarp / kTeam * kTeam;
    const unsigned mask = ~0u >> (kWarp - kTeam) << first;
#pragma unroll
    for (int offset = kTeam / 2; offset > 0; offset /= 2)
      value += __shfl_xor_sync(mask, value, offset);
    return value;
  }
}

// A team has a row, kPacks packs a lane, all in registers; blocks stride over the rows. Reads x
// (and branch) once, writes y (and sum) once.
template <int kTeam, int kPacks, class T>
__global__ void __launch_bounds__(kForwardThreads, sizeof(T) == 2 ? 2 : 1)
    forward_kernel(const Forward<T> a) {
  constexpr int kTeams = kForwardThreads / kTeam;
  // Gamma and beta stay in registers where they fit.
  constexpr bool kKeeps = sizeof(T) == 2 && kTeam <= kWarp && kPacks <= 3;
  using Pack = Packed<T, kVector>;
  __shared__ float shared[kForwardThreads / kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kTeam,
            team = static_cast<int>(threadIdx.x) / kTeam;
  const float count = static_cast<float>(a.cols);
  const auto holds = [&](int k) { return (lane + k * kTeam) * kVector < a.cols; };
  const auto column = [&](int k) { return (lane + k * kTeam) * kVector; };
  Pack gamma[kKeeps ? kPacks : 1], beta[kKeeps ? kPacks : 1];
  if constexpr (kKeeps) {
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      if (!holds(k)) continue;
      gamma[k].load(a.gamma + column(k));
      if (a.beta != nullptr) beta[k].load(a.beta + column(k));
    }
  }
  const std::int64_t step = std::int64_t{gridDim.x} * kTeams;
  for (std::int64_t row = std::int64_t{blockIdx.x} * kTeams + team; row < a.rows; row += step) {
    const std::int64_t start = row * a.cols;
    Pack in[kPacks], branch[kPacks];
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      if (!holds(k)) continue;
      in[k].load(a.x + start + column(k));
      if (a.branch != nullptr) branch[k].load(a.branch + start + column(k));
    }
    float x[kPacks][kVector], total = 0;
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      if (!holds(k)) continue;
      in[k].unpack(x[k]);
      if (a.branch != nullptr) {
        float other[kVector];
        branch[k].unpack(other);
#pragma unroll
        for (int i = 0; i < kVector; ++i)  // as rounded: what is stored is normalised
          x[k][i] = to_float(from_float<T>(x[k][i] + other[i]));
        store8(a.sum + start + column(k), x[k]);
      }
#pragma unroll
      for (int i = 0; i < kVector; ++i)
        total += x[k][i];
    }
    const float mean = a.centred ? team_sum<kTeam>(total, shared) / count : 0.0f;
    float squares = 0;
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      if (!holds(k)) continue;
#pragma unroll
      for (int i = 0; i < kVector; ++i)
        squares += (x[k][i] - mean) * (x[k][i] - mean);
    }
    const float rstd = 1.0f / sqrtf(team_sum<kTeam>(squares, shared) / count + a.eps);
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      if (!holds(k)) continue;
      float g[kVector], b[kVector] = {};
      if constexpr (kKeeps) {
        gamma[k].unpack(g);
        if (a.beta != nullptr) beta[k].unpack(b);
      } else {
        load8(g, a.gamma + column(k));
        if (a.beta != nullptr) load8(b, a.beta + column(k));
      }
#pragma unroll
      for (int i = 0; i < kVector; ++i)
        x[k][i] = (x[k][i] - mean) * rstd * g[i] + b[i];
      store8(a.y + start + column(k), x[k]);
    }
    if (lane == 0) {
      if (a.centred) a.mean[row] = mean;
      a.rstd[row] = rstd;
    }
  }
}

// Any number of columns: a team a row, three passes, of which two mostly hit the caches.
template <int kTeam, class T>
__global__ void __launch_bounds__(kTeamBlock) plain_forward_kernel(const Forward<T> a) {
  __shared__ float shared[kTeamBlock / kWarp];
  const Team<kTeam> team(shared);
  if (team.row >= a.rows) return;
  const std::int64_t start = team.row * a.cols;
  const float count = static_cast<float>(a.cols);
  float total = 0, squares = 0;
  for (std::int64_t j = team.lane; j < a.cols; j += kTeam) {
    float v = to_float(a.x[start + j]);
    if (a.branch != nullptr) {
      const T rounded = from_float<T>(v + to_float(a.branch[start + j]));
      a.sum[start + j] = rounded;
      v = to_float(rounded);
    }
    total += v;
  }
  const T* const x = a.branch != nullptr ? a.sum : a.x;  // a thread reads what it wrote itself
  const float mean = a.centred ? team.sum(total) / count : 0.0f;
  for (std::int64_t j = team.lane; j < a.cols; j += kTeam) {
    const float v = to_float(x[start + j]) - mean;
    squares += v * v;
  }
  const float rstd = 1.0f / sqrtf(team.sum(squares) / count + a.eps);
  for (std::int64_t j = team.lane; j < a.cols; j += kTeam) {
    const float b = a.beta != nullptr ? to_float(a.beta[j]) : 0.0f;
    a.y[start + j] =
        from_float<T>((to_float(x[start + j]) - mean) * rstd * to_float(a.gamma[j]) + b);
  }
  if (team.lane == 0) {
    if (a.centred) a.mean[team.row] = mean;
    a.rstd[team.row] = rstd;
  }
}

// Writes a block's partial row [kParts, cols]: its teams are added in their order.
template <int kTeam, int kPacks, int kThreads, int kParts>
__device__ __forceinline__ void write_parts(float* out,
                                            const float (&part)[kParts][kPacks][kVector],
                                            float* shared, std::int64_t cols) {
  constexpr int kTeams = kThreads / kTeam, kColumns = kTeam * kPacks * kVector;
  const int lane = static_cast<int>(threadIdx.x) % kTeam,
            team = static_cast<int>(threadIdx.x) / kTeam;
  if constexpr (kTeams == 1) {
#pragma unroll
    for (int p = 0; p < kParts; ++p) {
#pragma unroll
      for (int k = 0; k < kPacks; ++k) {
        const int column = (lane + k * kTeam) * kVector;
        if (column < cols) store8(out + p * cols + column, part[p][k]);
      }
    }
  } else {
    for (int turn = 0; turn < kTeams; ++turn) {
      if (turn == team) {
#pragma unroll
        for (int at = 0; at < kParts * kPacks * kVector; ++at) {
          const int p = at / (kPacks * kVector), k = at / kVector % kPacks, i = at % kVector;
          float& to = shared[at * kTeam + lane];  // lanes side by side: no bank is asked twice
          to = turn == 0 ? part[p][k][i] : to + part[p][k][i];
        }
      }
      __syncthreads();
    }
    for (int at = static_cast<int>(threadIdx.x); at < kParts * kColumns; at += kThreads) {
      const int p = at / kColumns, k = at / (kTeam * kVector) % kPacks, i = at / kTeam % kVector;
      const int column = (at % kTeam + k * kTeam) * kVector + i;
      if (column < cols) out[p * cols + column] = shared[at];
    }
  }
}

// dx = rstd (g - mean(g) - xhat mean(g xhat)) + dsum with g = dy gamma. A team has a row, kPacks
// packs a lane; blocks stride over the rows and keep their shares of the parameters' gradients in
// registers: the teams of a block are added in order. Reads dy, x and dsum once, writes dx once,
// and one partial row a block.
template <int kTeam, int kPacks, bool kSums, int kThreads, class T>
__global__ void __launch_bounds__(kThreads, 1) backward_kernel(const Backward<T> a) {
  constexpr int kTeams = kThreads / kTeam, kColumns = kTeam * kPacks * kVector,
                kParts = kSums ? 3 : 2;
  using Pack = Packed<T, kVector>;
  __shared__ float shared[kTeams > 1 ? kParts * kColumns : kThreads / kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kTeam,
            team = static_cast<int>(threadIdx.x) / kTeam;
  const float share = 1.0f / static_cast<float>(a.cols);
  const auto holds = [&](int k) { return (lane + k * kTeam) * kVector < a.cols; };
  const auto column = [&](int k) { return (lane + k * kTeam) * kVector; };
  float part[kParts][kPacks][kVector] = {};
  const std::int64_t step = std::int64_t{gridDim.x} * kTeams;
  for (std::int64_t row = std::int64_t{blockIdx.x} * kTeams + team; row < a.rows; row += step) {
    const std::int64_t start = row * a.cols;
    Pack dy[kPacks], x[kPacks], past[kPacks];
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      if (holds(k)) dy[k].load(a.dy + start + column(k));
    }
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      if (holds(k)) x[k].load(a.x + start + column(k));
    }
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      if (holds(k) && a.dsum != nullptr) past[k].load(a.dsum + start + column(k));
    }
    const float rstd = a.rstd[row], mean = a.centred ? a.mean[row] : 0.0f;
    float plain = 0, along = 0;
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      if (!holds(k)) continue;
      float d[kVector], h[kVector], g[kVector];
      dy[k].unpack(d);
      x[k].unpack(h);
      load8(g, a.gamma + column(k));
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        h[i] = (h[i] - mean) * rstd;
        part[0][k][i] += d[i] * h[i];
        part[1][k][i] += d[i];
        g[i] *= d[i];
        plain += g[i];
        along += g[i] * h[i];
      }
    }
    if (a.dx == nullptr) continue;
    plain = a.centred ? team_sum<kTeam>(plain, shared) * share : 0.0f;
    along = team_sum<kTeam>(along, shared) * share;
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      if (!holds(k)) continue;
      float d[kVector], h[kVector], g[kVector], r[kVector] = {};
      dy[k].unpack(d);
      x[k].unpack(h);
      load8(g, a.gamma + column(k));
      if (a.dsum != nullptr) past[k].unpack(r);
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        d[i] = r[i] + rstd * (d[i] * g[i] - plain - (h[i] - mean) * rstd * along);
        if constexpr (kSums) part[2][k][i] += d[i];
      }
      store8(a.dx + start + column(k), d);
    }
  }
  if (a.partial == nullptr) return;
  write_parts<kTeam, kPacks, kThreads>(a.partial + std::int64_t{blockIdx.x} * kParts * a.cols, part,
                                       shared, a.cols);
}

// Any number of columns: a team a row, two passes. Writes dx alone.
template <int kTeam, class T>
__global__ void __launch_bounds__(kTeamBlock) plain_backward_kernel(const Backward<T> a) {
  __shared__ float shared[kTeamBlock / kWarp];
  const Team<kTeam> team(shared);
  if (team.row >= a.rows) return;
  const std::int64_t start = team.row * a.cols;
  const float rstd = a.rstd[team.row], mean = a.centred ? a.mean[team.row] : 0.0f;
  float plain = 0, along = 0;
  for (std::int64_t j = team.lane; j < a.cols; j += kTeam) {
    const float g = to_float(a.dy[start + j]) * to_float(a.gamma[j]);
    plain += g;
    along += g * ((to_float(a.x[start + j]) - mean) * rstd);
  }
  plain = a.centred ? team.sum(plain) / static_cast<float>(a.cols) : 0.0f;
  along = team.sum(along) / static_cast<float>(a.cols);
  for (std::int64_t j = team.lane; j < a.cols; j += kTeam) {
    const float hat = (to_float(a.x[start + j]) - mean) * rstd;
    const float g = to_float(a.dy[start + j]) * to_float(a.gamma[j]);
    const float past = a.dsum != nullptr ? to_float(a.dsum[start + j]) : 0.0f;
    a.dx[start + j] = from_float<T>(rstd * (g - plain - hat * along) + past);
  }
}

// One thread a column and slab of rows: its share of dgamma and dbeta. Reads dy and x once.
template <class T>
__global__ void __launch_bounds__(kTeamBlock) plain_parameters_kernel(const Backward<T> a) {
  const std::int64_t j = std::int64_t{blockIdx.y} * kTeamBlock + threadIdx.x;
  if (j >= a.cols) return;
  const std::int64_t begin = std::int64_t{blockIdx.x} * kSlabRows,
                     end = begin + kSlabRows < a.rows ? begin + kSlabRows : a.rows;
  float dgamma = 0, dbeta = 0;
#pragma unroll 4
  for (std::int64_t row = begin; row < end; ++row) {
    const float d = to_float(a.dy[row * a.cols + j]);
    const float mean = a.centred ? a.mean[row] : 0.0f;
    dgamma += d * ((to_float(a.x[row * a.cols + j]) - mean) * a.rstd[row]);
    dbeta += d;
  }
  float* const out = a.partial + std::int64_t{blockIdx.x} * 2 * a.cols + j;
  out[0] = dgamma;
  out[a.cols] = dbeta;
}

// Calls fn(team, packs) with the smallest register kernel that holds `cols`, else returns false.
template <int kSize, int kPacks>
struct Held {
  static constexpr int team = kSize, packs = kPacks;
};
template <class T, class F>
bool for_held(std::int64_t cols, F&& fn) {
  constexpr std::int64_t kWide = kWarp * kVector;                // columns of one pack a lane
  if (cols <= kWide / 4) return fn(Held<kWarp / 4, 1>{}), true;  // heads
  if (cols <= kWide / 2) return fn(Held<kWarp / 2, 1>{}), true;
  if (cols <= kWide) return fn(Held<kWarp, 1>{}), true;
  if (cols <= 3 * kWide) return fn(Held<kWarp, 3>{}), true;
  if (cols <= 4 * kWide) return fn(Held<kWarp, 4>{}), true;
  if constexpr (sizeof(T) == 2) {  // f32 would spill
    if (cols <= 6 * kWide) return fn(Held<kWarp, 6>{}), true;
  }
  if (cols <= 2048) return fn(Held<kTeamBlock, 1>{}), true;
  if (cols <= 8192) return fn(Held<kTeamBlock, 4>{}), true;
  return false;
}

std::int64_t at_most(std::int64_t a, std::int64_t b) {
  return a < b ? a : b;
}

void norm_forward(StreamRef stream, const char* name, bool centred, const View& y, const View& mean,
                  const View& rstd, const View& sum, const View& x, const View& branch,
                  const View& gamma, const View& beta, double eps) {
  const std::int64_t rows = x.rows(), cols = x.cols();
  if (rows == 0 || cols == 0) return;
  const bool packed = is_packable(x, cols) && is_aligned(y.data) && is_aligned(sum.data) &&
                      is_aligned(branch.data) && is_aligned(gamma.data) && is_aligned(beta.data);
  for_float(x.dtype, name, [&](auto zero) {
    using T = decltype(zero);
    const Forward<T> args{y.ptr<T>(),
                          sum.ptr<T>(),
                          mean.ptr<float>(),
                          rstd.ptr<float>(),
                          x.ptr<T>(),
                          branch.ptr<T>(),
                          gamma.ptr<T>(),
                          beta.ptr<T>(),
                          rows,
                          cols,
                          static_cast<float>(eps),
                          centred};
    const auto fast = [&](auto held) {
      constexpr int kTeams = kForwardThreads / held.team;
      const auto blocks = static_cast<unsigned>(
          at_most((rows + kTeams - 1) / kTeams, std::int64_t{kForwardBlocks} * multiprocessors()));
      forward_kernel<held.team, held.packs, T>
          <<<blocks, kForwardThreads, 0, stream_of(stream)>>>(args);
    };
    if (!packed || !for_held<T>(cols, fast)) {
      for_team(rows, cols, [&](auto team, unsigned blocks) {
        plain_forward_kernel<decltype(team)::value, T>
            <<<blocks, kTeamBlock, 0, stream_of(stream)>>>(args);
      });
    }
    check_launch(name);
  });
}

// The plain path's two halves: dx, then the parameters' gradients.
template <class T>
void plain_backward(StreamRef stream, const char* name, const Backward<T>& given,
                    const Totals& totals) {
  if (given.dx != nullptr) {
    for_team(given.rows, given.cols, [&](auto team, unsigned blocks) {
      plain_backward_kernel<decltype(team)::value, T>
          <<<blocks, kTeamBlock, 0, stream_of(stream)>>>(given);
      check_launch(name);
    });
  }
  if (totals.to[0] == nullptr && totals.to[1] == nullptr) return;
  const std::int64_t slabs = (given.rows + kSlabRows - 1) / kSlabRows;
  Backward<T> args = given;
  args.partial = static_cast<float*>(
      scratch(stream, static_cast<std::size_t>(slabs * 2 * args.cols) * sizeof(float), name));
  plain_parameters_kernel<T>
      <<<dim3(static_cast<unsigned>(slabs), blocks_for(args.cols, kTeamBlock)), kTeamBlock, 0,
         stream_of(stream)>>>(args);
  check_launch(name);
  add_partials(stream, name, totals, 2, args.partial, slabs, args.cols);
}

// Where the column sums of dx are made in the same pass: registers allow it and it is worth it.
template <class T>
constexpr bool sums_along(int team, int packs) {
  return sizeof(T) == 2 && team == kWarp && (packs == 3 || packs == 4);
}
bool sums_along(DType dtype, std::int64_t cols) {
  return size_of(dtype) == 2 && cols > kWarp * kVector && cols <= 4 * kWarp * kVector;
}

template <class T>
bool fast_backward(StreamRef stream, const char* name, Backward<T> args, const Totals& totals) {
  return for_held<T>(args.cols, [&](auto held) {
    constexpr int kSize = held.team, kPacks = held.packs;
    constexpr int kThreads = kSize <= kWarp && kPacks <= 3 ? kBackwardThreads : kTeamBlock,
                  kTeams = kThreads / kSize;
    constexpr bool kCanSum = sums_along<T>(kSize, kPacks);
    const bool sums = kCanSum && totals.to[2] != nullptr;
    const int parts = sums ? 3 : 2;
    const std::int64_t blocks =
        at_most((args.rows + kTeams - 1) / kTeams, (kPacks == 1 ? 2L : 1L) * multiprocessors());
    if (sums || totals.to[0] != nullptr || totals.to[1] != nullptr) {
      args.partial = static_cast<float*>(scratch(
          stream, static_cast<std::size_t>(blocks * parts * args.cols) * sizeof(float), name));
    }
    const auto grid = static_cast<unsigned>(blocks);
    if constexpr (kCanSum) {
      if (sums)
        backward_kernel<kSize, kPacks, true, kThreads, T>
            <<<grid, kThreads, 0, stream_of(stream)>>>(args);
    }
    if (!sums)
      backward_kernel<kSize, kPacks, false, kThreads, T>
          <<<grid, kThreads, 0, stream_of(stream)>>>(args);
    check_launch(name);
    if (args.partial != nullptr)
      add_partials(stream, name, totals, parts, args.partial, blocks, args.cols);
  });
}

void norm_backward(StreamRef stream, const char* name, bool centred, const View& dx,
                   const View& dgamma, const View& dbeta, const View& dy, const View& dsum,
                   const View& x, const View& gamma, const View& mean, const View& rstd,
                   const View& dbranch_bias) {
  const std::int64_t rows = x.rows(), cols = x.cols();
  if (rows == 0 || cols == 0) return;
  const bool packed = is_packable(x, cols) && is_aligned(dx.data) && is_aligned(dy.data) &&
                      is_aligned(dsum.data) && is_aligned(gamma.data);
  const Totals totals{{dgamma.ptr<float>(), dbeta.ptr<float>(), dbranch_bias.ptr<float>()}};
  for_float(x.dtype, name, [&](auto zero) {
    using T = decltype(zero);
    const Backward<T> args{dx.ptr<T>(),
                           dy.ptr<T>(),
                           dsum.ptr<T>(),
                           x.ptr<T>(),
                           gamma.ptr<T>(),
                           mean.ptr<float>(),
                           rstd.ptr<float>(),
                           nullptr,
                           rows,
                           cols,
                           centred};
    if (!packed || !fast_backward(stream, name, args, totals))
      plain_backward(stream, name, args, totals);
  });
  if (dbranch_bias && !(packed && sums_along(x.dtype, cols))) column_sum(stream, dbranch_bias, dx);
}

}  // namespace

void layer_norm_forward(StreamRef stream, const View& y, const View& mean, const View& rstd,
                        const View& sum, const View& x, const View& branch, const View& gamma,
                        const View& beta, double eps) {
  norm_forward(stream, "layer_norm", true, y, mean, rstd, sum, x, branch, gamma, beta, eps);
}

void layer_norm_backward(StreamRef stream, const View& dx, const View& dgamma, const View& dbeta,
                         const View& dy, const View& dsum, const View& x, const View& gamma,
                         const View& mean, const View& rstd, const View& dbranch_bias) {
  norm_backward(stream, "layer_norm_backward", true, dx, dgamma, dbeta, dy, dsum, x, gamma, mean,
                rstd, dbranch_bias);
}

void rms_norm_forward(StreamRef stream, const View& y, const View& rstd, const View& sum,
                      const View& x, const View& branch, const View& gamma, double eps) {
  norm_forward(stream, "rms_norm", false, y, {}, rstd, sum, x, branch, gamma, {}, eps);
}

void rms_norm_backward(StreamRef stream, const View& dx, const View& dgamma, const View& dy,
                       const View& dsum, const View& x, const View& gamma, const View& rstd,
                       const View& dbranch_bias) {
  norm_backward(stream, "rms_norm_backward", false, dx, dgamma, {}, dy, dsum, x, gamma, {}, rstd,
                dbranch_bias);
}

}  // namespace fovea::cuda
