// The optimizer's arithmetic over flat buffers.

#include "kernels/cuda/tile/packed.cuh"
#include "kernels/cuda/tile/reduce.cuh"
#include "kernels/optim.h"

namespace fovea::cuda {

namespace {

constexpr int kNormThreads = 512;
constexpr int kNormUnroll = 4;  // packs in flight a thread
constexpr int kDecideThreads = 256;
constexpr int kAdamThreads = 128;  // .886 ms for 124.5M elements; 256: .985
constexpr int kAdamGroup = 4;      // elements a thread: one 16-byte access of f32

// Block i has chunk i. Reads x once; squares and sums in f64.
template <int kWidth, class T>
__global__ void __launch_bounds__(kNormThreads)
    squared_norm_kernel(double* partials, const T* x, std::int64_t n) {
  constexpr int kStep = kNormThreads * kWidth;
  __shared__ double warps[kNormThreads / kWarp];
  const std::int64_t begin = std::int64_t{blockIdx.x} * kNormChunk,
                     end = begin + kNormChunk < n ? begin + kNormChunk : n;
  double sum = 0;
  for (std::int64_t at = begin + static_cast<int>(threadIdx.x) * kWidth; at < end;
       at += kStep * kNormUnroll) {
    Packed<T, kWidth> in[kNormUnroll];
#pragma unroll
    for (int u = 0; u < kNormUnroll; ++u) {
      if (at + u * kStep + kWidth <= end) in[u].load(x + at + u * kStep);
    }
#pragma unroll
    for (int u = 0; u < kNormUnroll; ++u) {
      const std::int64_t here = at + u * kStep;
      if (here + kWidth <= end) {
        float v[kWidth];
        in[u].unpack(v);
#pragma unroll
        for (int i = 0; i < kWidth; ++i)
          sum += static_cast<double>(v[i]) * static_cast<double>(v[i]);
      } else {
        for (std::int64_t i = here; i < end; ++i)
          sum += static_cast<double>(to_float(x[i])) * static_cast<double>(to_float(x[i]));
      }
    }
  }
  sum = block_sum<kNormThreads>(sum, warps);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

__device__ void decide(StepScalars& s, double squares, const DecideArgs& args) {
  constexpr double kMaxScale = 16777216;
  s.norm = sqrt(squares) / s.scale;
  s.finite = isfinite(s.norm) ? 1 : 0;
  const double clip = args.max_norm > 0 && s.norm > args.max_norm ? args.max_norm / s.norm : 1;
  s.multiplier = clip / s.scale;
  if (s.finite == 0) {
    s.scale = s.scale > 2 ? s.scale / 2 : 1;
    s.good_steps = 0;
    s.skipped_in_a_row += 1;
    s.skipped += 1;
    return;
  }
  s.skipped_in_a_row = 0;
  s.adam_count += 1;
  s.correction1 = 1 - pow(args.beta1, s.adam_count);
  s.correction2 = 1 - pow(args.beta2, s.adam_count);
  s.good_steps += 1;
  if (args.growth_interval > 0 && s.good_steps >= args.growth_interval) {
    s.scale = s.scale * 2 < kMaxScale ? s.scale * 2 : kMaxScale;
    s.good_steps = 0;
  }
}

// One block. Every thread adds a run of partials in order, then the runs are added in a fixed
// order: thousands of dependent f64 additions by one thread would take tens of microseconds.
__global__ void __launch_bounds__(kDecideThreads)
    scaler_decide_kernel(StepScalars* scalars, const double* partials, std::int64_t count,
                         const DecideArgs args) {
  __shared__ double warps[kDecideThreads / kWarp];
  const std::int64_t run = (count + kDecideThreads - 1) / kDecideThreads, begin = threadIdx.x * run,
                     end = begin + run < count ? begin + run : count;
  double sum = 0;
  for (std::int64_t i = begin; i < end; ++i)
    sum += partials[i];
  sum = block_sum<kDecideThreads>(sum, warps);
  if (threadIdx.x != 0) return;
  StepScalars now = *scalars;
  decide(now, sum, args);
  *scalars = now;
}

struct AdamWFactors {
  float beta1, beta2, rest1, rest2, eps;
  double weight_decay;
};

// The scalars of one update, as the threads need them. Divided
// in f32: f64 divisions by every thread would show beside the memory traffic.
struct Update {
  float multiplier, step, correction2, shrink;
  __device__ __forceinline__ Update(const StepScalars& now, float lr_factor, bool decays,
                                    double weight_decay) {
    const double lr = now.lr * static_cast<double>(lr_factor);
    multiplier = static_cast<float>(now.multiplier);
    step = static_cast<float>(lr) / static_cast<float>(now.correction1);
    correction2 = 1.0f / static_cast<float>(now.correction2);
    shrink = decays ? static_cast<float>(1 - lr * weight_decay) : 1.0f;
  }
  __device__ __forceinline__ void operator()(float& w, float& m, float& v, float gradient,
                                             const AdamWFactors& f) const {
    const float g = gradient * multiplier;
    m = f.beta1 * m + f.rest1 * g;
    v = f.beta2 * v + f.rest2 * g * g;
    w = w * shrink - step * m / (sqrtf(v * correction2) + f.eps);
  }
};

template <class C>
struct alignas(4 * sizeof(C)) Four {
  C v[4];
};

// A thread has four elements. Reads master, moments and gradient once; writes master, moments and
// the rounded copy once. kGroups: whether blocks have rates of their own; without them the code is
// that of a single rate.
template <bool kPacked, bool kCopies, bool kGroups, class C>
__global__ void __launch_bounds__(kAdamThreads)
    adamw_kernel(float* __restrict__ master, C* __restrict__ compute, float* __restrict__ first,
                 float* __restrict__ second, const float* __restrict__ gradient,
                 const std::uint8_t* __restrict__ decay_blocks, const float* __restrict__ lr_blocks,
                 const StepScalars* __restrict__ scalars, std::int64_t n, const AdamWFactors f) {
  const std::int64_t at = (std::int64_t{blockIdx.x} * kAdamThreads + threadIdx.x) * kAdamGroup;
  if (at >= n) return;
  const bool decays = decay_blocks[at / kDecayBlock] != 0;
  float lr_factor = 1;
  if constexpr (kGroups) lr_factor = lr_blocks[at / kDecayBlock];
  if (kPacked && at + kAdamGroup <= n) {
    float4 w = *reinterpret_cast<const float4*>(master + at),
           m = *reinterpret_cast<const float4*>(first + at),
           v = *reinterpret_cast<const float4*>(second + at);
    const float4 g = *reinterpret_cast<const float4*>(gradient + at);
    if (scalars->finite == 0) return;  // after the loads, which need not wait for it
    const Update update(*scalars, lr_factor, decays, f.weight_decay);
    update(w.x, m.x, v.x, g.x, f);
    update(w.y, m.y, v.y, g.y, f);
    update(w.z, m.z, v.z, g.z, f);
    update(w.w, m.w, v.w, g.w, f);
    *reinterpret_cast<float4*>(master + at) = w;
    *reinterpret_cast<float4*>(first + at) = m;
    *reinterpret_cast<float4*>(second + at) = v;
    if constexpr (kCopies) {
      *reinterpret_cast<Four<C>*>(compute + at) = {
          {from_float<C>(w.x), from_float<C>(w.y), from_float<C>(w.z), from_float<C>(w.w)}};
    }
    return;
  }
  if (scalars->finite == 0) return;
  const Update update(*scalars, lr_factor, decays, f.weight_decay);
  for (std::int64_t i = at; i < at + kAdamGroup && i < n; ++i) {
    float w = master[i], m = first[i], v = second[i];
    update(w, m, v, gradient[i], f);
    master[i] = w;
    first[i] = m;
    second[i] = v;
    if constexpr (kCopies) compute[i] = from_float<C>(w);
  }
}

template <bool kCopies, class C>
auto kernel_for(bool packed, bool groups) {
  if (packed)
    return groups ? adamw_kernel<true, kCopies, true, C> : adamw_kernel<true, kCopies, false, C>;
  return groups ? adamw_kernel<false, kCopies, true, C> : adamw_kernel<false, kCopies, false, C>;
}

}  // namespace

void squared_norm(StreamRef stream, const View& partials, const View& x) {
  const std::int64_t n = x.numel();
  if (n == 0) return;
  for_float(x.dtype, "squared_norm", [&](auto zero) {
    using T = decltype(zero);
    const unsigned blocks = blocks_for(n, kNormChunk);
    if (is_aligned(x.data)) {
      squared_norm_kernel<kVector, T>
          <<<blocks, kNormThreads, 0, stream_of(stream)>>>(partials.ptr<double>(), x.ptr<T>(), n);
    } else {
      squared_norm_kernel<1, T>
          <<<blocks, kNormThreads, 0, stream_of(stream)>>>(partials.ptr<double>(), x.ptr<T>(), n);
    }
    check_launch("squared_norm");
  });
}

void scaler_decide(StreamRef stream, const View& scalars, const View& partials,
                   const DecideArgs& args) {
  scaler_decide_kernel<<<1, kDecideThreads, 0, stream_of(stream)>>>(
      scalars.ptr<StepScalars>(), partials.ptr<double>(), partials.numel(), args);
  check_launch("scaler_decide");
}

void adamw_step(StreamRef stream, const View& master, const View& compute, const View& first,
                const View& second, const View& gradient, const View& decay_blocks,
                const View& lr_blocks, const View& scalars, const AdamWArgs& args) {
  const std::int64_t n = master.numel();
  if (n == 0) return;
  if (master.dtype != DType::f32) refuse("adamw_step", master.dtype);
  const bool copies = compute && compute.data != master.data;
  const AdamWFactors factors{static_cast<float>(args.beta1),     static_cast<float>(args.beta2),
                             static_cast<float>(1 - args.beta1), static_cast<float>(1 - args.beta2),
                             static_cast<float>(args.eps),       args.weight_decay};
  const bool packed = is_aligned(master.data) && is_aligned(compute.data) &&
                      is_aligned(first.data) && is_aligned(second.data) &&
                      is_aligned(gradient.data);
  const auto go = [&](auto kernel, auto* to) {
    kernel<<<blocks_for(n, std::int64_t{kAdamThreads} * kAdamGroup), kAdamThreads, 0,
             stream_of(stream)>>>(master.ptr<float>(), to, first.ptr<float>(), second.ptr<float>(),
                                  gradient.ptr<float>(), decay_blocks.ptr<std::uint8_t>(),
                                  lr_blocks.ptr<float>(), scalars.ptr<StepScalars>(), n, factors);
    check_launch("adamw_step");
  };
  const bool groups = static_cast<bool>(lr_blocks);
  if (!copies) return go(kernel_for<false, float>(packed, groups), static_cast<float*>(nullptr));
  for_float(compute.dtype, "adamw_step", [&](auto zero) {
    using C = decltype(zero);
    go(kernel_for<true, C>(packed, groups), compute.ptr<C>());
  });
}

}  // namespace fovea::cuda
