// Learned masks of a small matrix: a thread an entry.

#include "kernels/cuda/tile/reduce.cuh"
#include "kernels/learned_mask.h"

namespace fovea::cuda {

namespace {

constexpr int kThreads = 256;

__device__ __forceinline__ float sigmoid(float x) {
  return 1.0f / (1.0f + expf(-x));
}

// z and dz/dG of one entry.
struct Mask {
  float z, slope;
};

// MaskParts with its pointers.
struct Source {
  const float *w, *g, *shift, *u, *tau;
  const std::uint8_t* m;
  std::int64_t matrices, sources, entries;
  MaskRule::Kind kind;
  bool sampled, dense;

  Source(const MaskParts& parts, const MaskRule& rule)
      : w(parts.w.ptr<const float>()),
        g(parts.g.ptr<const float>()),
        shift(parts.shift.ptr<const float>()),
        u(parts.u.ptr<const float>()),
        tau(parts.tau.ptr<const float>()),
        m(parts.m.ptr<const std::uint8_t>()),
        matrices(parts.matrices),
        sources(parts.sources),
        entries(parts.entries),
        kind(rule.kind),
        sampled(rule.sampled && rule.kind != MaskRule::Kind::magnitude),
        dense(rule.dense) {}

  __device__ __forceinline__ std::int64_t of(std::int64_t p) const {
    return p * sources / matrices;
  }
  __device__ __forceinline__ Mask at(std::int64_t p, std::int64_t i) const {
    constexpr float kLow = static_cast<float>(kStretchLow),
                    kSpan = static_cast<float>(kStretchHigh) - kLow;
    if (kind == MaskRule::Kind::magnitude) return {1, 0};
    float x = g[i], by = 1;
    if (shift != nullptr) x += shift[p];
    if (sampled) {
      by = tau[0];
      x = (logf(u[i]) - log1pf(-u[i]) + x) / by;
    }
    const float y = sigmoid(x), slope = y * (1 - y) / by;
    if (kind == MaskRule::Kind::hard_concrete) {
      const float stretched = y * kSpan + kLow;
      return {fminf(fmaxf(stretched, 0.0f), 1.0f),
              stretched > 0 && stretched < 1 ? kSpan * slope : 0.0f};
    }
    if (kind == MaskRule::Kind::concrete && sampled) return {y, slope};
    return {x > 0 ? 1.0f : 0.0f, sampled ? slope : 0.0f};
  }
  __device__ __forceinline__ float kept(std::int64_t i) const {
    return dense || m[i] != 0 ? 1.0f : 0.0f;
  }
};

__global__ void __launch_bounds__(kThreads) mask_kernel(float* s, const Source source) {
  const std::int64_t out = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (out >= source.matrices * source.entries) return;
  const std::int64_t p = out / source.entries,
                     i = source.of(p) * source.entries + out % source.entries;
  s[out] = source.m[i] == 0 ? 0.0f : source.at(p, i).z * source.w[i];
}

// Adds the matrices of one source in their order.
__global__ void __launch_bounds__(kThreads)
    mask_backward_kernel(float* dw, float* dg, float* whole, const float* __restrict__ ds,
                         const Source source) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= source.sources * source.entries) return;
  const std::int64_t share = source.matrices / source.sources, q = i / source.entries,
                     e = i % source.entries;
  const float kept = source.kept(i), w = source.w[i];
  float of_w = 0, of_g = 0, of_s = 0;
  for (std::int64_t p = q * share; p < (q + 1) * share; ++p) {
    const Mask mask = source.at(p, i);
    const float d = ds[p * source.entries + e];
    of_w += mask.z * d;
    of_g += w * d * mask.slope;
    of_s += d;
  }
  if (dw != nullptr) dw[i] += kept * of_w;
  if (dg != nullptr) dg[i] += kept * of_g;
  if (whole != nullptr) whole[i] += of_s;
}

// A block a matrix.
__global__ void __launch_bounds__(kThreads)
    shift_kernel(float* dshift, const float* __restrict__ ds, const Source source) {
  __shared__ float warps[kThreads / kWarp];
  const std::int64_t p = blockIdx.x, first = source.of(p) * source.entries;
  float sum = 0;
  for (std::int64_t e = threadIdx.x; e < source.entries; e += kThreads) {
    const std::int64_t i = first + e;
    sum += source.kept(i) * source.w[i] * ds[p * source.entries + e] * source.at(p, i).slope;
  }
  sum = block_sum<kThreads>(sum, warps);
  if (threadIdx.x == 0) dshift[p] += sum;
}

__global__ void __launch_bounds__(kThreads)
    logistic_kernel(float* y, const float* __restrict__ x, const float* __restrict__ shift,
                    const float* __restrict__ tau, float per_tau, std::int64_t matrices,
                    std::int64_t sources, std::int64_t entries) {
  const std::int64_t out = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (out >= matrices * entries) return;
  const std::int64_t p = out / entries;
  const float at = x[p * sources / matrices * entries + out % entries];
  y[out] = sigmoid(at + (shift != nullptr ? shift[p] : 0.0f) -
                   (tau != nullptr ? per_tau * tau[0] : 0.0f));
}

__device__ __forceinline__ float logistic_slope(const float* dy, const float* y, std::int64_t at) {
  return dy[at] * y[at] * (1 - y[at]);
}

__global__ void __launch_bounds__(kThreads)
    logistic_backward_kernel(float* dx, const float* __restrict__ dy, const float* __restrict__ y,
                             std::int64_t matrices, std::int64_t sources, std::int64_t entries) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= sources * entries) return;
  const std::int64_t share = matrices / sources, q = i / entries, e = i % entries;
  float sum = 0;
  for (std::int64_t p = q * share; p < (q + 1) * share; ++p)
    sum += logistic_slope(dy, y, p * entries + e);
  dx[i] += sum;
}

// A block a matrix.
__global__ void __launch_bounds__(kThreads)
    logistic_shift_kernel(float* dshift, const float* __restrict__ dy, const float* __restrict__ y,
                          std::int64_t entries) {
  __shared__ float warps[kThreads / kWarp];
  float sum = 0;
  for (std::int64_t e = threadIdx.x; e < entries; e += kThreads)
    sum += logistic_slope(dy, y, blockIdx.x * entries + e);
  sum = block_sum<kThreads>(sum, warps);
  if (threadIdx.x == 0) dshift[blockIdx.x] += sum;
}

__global__ void __launch_bounds__(kThreads)
    uniform_kernel(float* u, std::int64_t n, const Key key) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= n) return;
  const float x = uniform_float(random_bits(key, static_cast<std::uint64_t>(i)));
  u[i] = x < 1e-6f ? 1e-6f : x > 1 - 1e-6f ? 1 - 1e-6f : x;
}

void require_f32(const View& x, const char* launcher) {
  if (x.dtype != DType::f32) refuse(launcher, x.dtype);
}

}  // namespace

void learned_mask_forward(StreamRef stream, const View& s, const MaskParts& parts,
                          const MaskRule& rule) {
  require_f32(s, "learned_mask");
  if (s.numel() == 0) return;
  mask_kernel<<<blocks_for(s.numel(), kThreads), kThreads, 0, stream_of(stream)>>>(
      s.ptr<float>(), Source(parts, rule));
  check_launch("learned_mask");
}

void learned_mask_backward(StreamRef stream, const MaskGradients& into, const View& ds,
                           const MaskParts& parts, const MaskRule& rule) {
  require_f32(ds, "learned_mask_backward");
  const Source source(parts, rule);
  const std::int64_t count = parts.sources * parts.entries;
  if (count == 0) return;
  mask_backward_kernel<<<blocks_for(count, kThreads), kThreads, 0, stream_of(stream)>>>(
      into.w.ptr<float>(), into.g.ptr<float>(), into.s.ptr<float>(), ds.ptr<const float>(), source);
  check_launch("learned_mask_backward");
  if (!into.shift) return;
  shift_kernel<<<blocks_for(parts.matrices, 1), kThreads, 0, stream_of(stream)>>>(
      into.shift.ptr<float>(), ds.ptr<const float>(), source);
  check_launch("learned_mask_backward");
}

void logistic_forward(StreamRef stream, const View& y, const View& x, const View& shift,
                      const View& tau, double per_tau) {
  require_f32(y, "logistic");
  if (y.numel() == 0) return;
  logistic_kernel<<<blocks_for(y.numel(), kThreads), kThreads, 0, stream_of(stream)>>>(
      y.ptr<float>(), x.ptr<const float>(), shift.ptr<const float>(), tau.ptr<const float>(),
      static_cast<float>(per_tau), y.dim[0], x.dim[0], x.dim[1]);
  check_launch("logistic");
}

void logistic_backward(StreamRef stream, const View& dx, const View& dshift, const View& dy,
                       const View& y) {
  require_f32(y, "logistic_backward");
  if (y.numel() == 0) return;
  const std::int64_t entries = y.dim[1];
  if (dx) {
    logistic_backward_kernel<<<blocks_for(dx.numel(), kThreads), kThreads, 0, stream_of(stream)>>>(
        dx.ptr<float>(), dy.ptr<const float>(), y.ptr<const float>(), y.dim[0], dx.dim[0], entries);
    check_launch("logistic_backward");
  }
  if (!dshift) return;
  logistic_shift_kernel<<<blocks_for(y.dim[0], 1), kThreads, 0, stream_of(stream)>>>(
      dshift.ptr<float>(), dy.ptr<const float>(), y.ptr<const float>(), entries);
  check_launch("logistic_backward");
}

void uniform_fill(StreamRef stream, const View& u, const Key& key) {
  if (u.numel() == 0) return;
  uniform_kernel<<<blocks_for(u.numel(), kThreads), kThreads, 0, stream_of(stream)>>>(
      u.ptr<float>(), u.numel(), key);
  check_launch("uniform");
}

}  // namespace fovea::cuda
