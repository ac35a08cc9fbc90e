// What maps of the token axis need around their matrix products.

#include "kernels/cuda/tile/packed.cuh"
#include "kernels/cuda/tile/reduce.cuh"
#include "kernels/cuda/tile/tokens.cuh"
#include "kernels/low_rank.h"

namespace fovea::cuda {

namespace {

constexpr int kThreads = 256;

// A unit a thread, heads inside tokens: the order of packed projections. Reads what is kept once,
// writes once.
template <int kWidth, class T>
__global__ void __launch_bounds__(kThreads)
    keep_valid_kernel(T* to, TokenStrides of_to, const T* from, TokenStrides of_from,
                      ValidTokens valid, std::int64_t heads, std::int64_t tokens,
                      std::int64_t units, std::int64_t count) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= count) return;
  const std::int64_t row = quotient(i, units), unit = i - row * units;
  const std::int64_t token = quotient(row, heads), h = row - token * heads;
  const std::int64_t b = quotient(token, tokens), n = token - b * tokens;
  float x[kWidth] = {};
  if (valid.of(b, n)) {
    Packed<T, kWidth> in;
    in.load(from + of_from.at(b, h, n) + unit * kWidth);
    in.unpack(x);
  }
  store_packed(to + of_to.at(b, h, n) + unit * kWidth, x);
}

// A block a block of tokens.
__global__ void __launch_bounds__(kThreads)
    any_valid_kernel(std::uint8_t* any, ValidTokens valid, std::int64_t blocks, std::int64_t block,
                     std::int64_t slots) {
  const std::int64_t b = quotient(blockIdx.x, blocks), p = blockIdx.x - b * blocks;
  int found = 0;
  for (std::int64_t j = threadIdx.x; j < block; j += kThreads)
    found |= valid.of(b, p * block + j) ? 1 : 0;
  found = __syncthreads_or(found);
  for (std::int64_t s = threadIdx.x; s < slots; s += kThreads)
    any[std::int64_t{blockIdx.x} * slots + s] = found != 0 ? 1 : 0;
}

// A block a slot. Reads the slot's weights once a sample and once more.
template <class T>
__global__ void __launch_bounds__(kThreads)
    slot_mass_kernel(float* mass, float* total, const T* e, ValidTokens valid, std::int64_t slots,
                     std::int64_t columns, std::int64_t tokens, std::int64_t batch) {
  __shared__ float warps[kThreads / kWarp];
  const T* const weights = e + blockIdx.x * columns;
  for (std::int64_t b = -1; b < batch; ++b) {
    float sum = 0;
    for (std::int64_t j = threadIdx.x; j < (b < 0 ? columns : tokens); j += kThreads)
      sum += b < 0 || valid.of(b, j) ? fabsf(to_float(weights[j])) : 0.0f;
    sum = block_sum<kThreads>(sum, warps);
    if (threadIdx.x == 0) (b < 0 ? total[blockIdx.x] : mass[b * slots + blockIdx.x]) = sum;
  }
}

// A weight a thread; reads it once, adds once.
template <class T>
__global__ void __launch_bounds__(kThreads)
    slot_mass_backward_kernel(float* de, const float* share, const float* mass, const float* total,
                              const T* e, ValidTokens valid, std::int64_t slots,
                              std::int64_t columns, std::int64_t tokens, std::int64_t batch) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= slots * columns) return;
  const std::int64_t slot = quotient(i, columns), j = i - slot * columns;
  float sum = 0;
  for (std::int64_t b = 0; b < batch; ++b) {
    const float m = mass[b * slots + slot];
    if (m == 0) continue;
    const float part = j < tokens && valid.of(b, j) ? 1 / m : 0.0f;
    sum += share[b * slots + slot] * (1 / total[slot] - part);
  }
  const float weight = to_float(e[i]);
  de[i] += weight > 0 ? sum : weight < 0 ? -sum : 0.0f;
}

// y = x total / mass, an element a thread.
template <class T>
__global__ void __launch_bounds__(kThreads)
    slot_scale_kernel(T* y, TokenStrides of_y, std::int64_t y_step, const T* x, TokenStrides of_x,
                      std::int64_t x_step, const float* mass, const float* total,
                      std::int64_t heads, std::int64_t slots, std::int64_t width,
                      std::int64_t groups, std::int64_t count) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= count) return;
  const std::int64_t row = quotient(i, width), c = i - row * width;
  const std::int64_t head = quotient(row, slots), r = row - head * slots;
  const std::int64_t b = quotient(head, heads), h = head - b * heads, g = h * groups / heads;
  const float m = mass[(b * groups + g) * slots + r];
  const float factor = m == 0 ? 0.0f : total[g * slots + r] / m;
  y[of_y.at(b, h, r) + c * y_step] =
      from_float<T>(factor * to_float(x[of_x.at(b, h, r) + c * x_step]));
}

// A block a slot of a sample. Reads dy and y once.
template <class T>
__global__ void __launch_bounds__(kThreads)
    slot_share_kernel(float* share, const T* dy, TokenStrides of_dy, std::int64_t dy_step,
                      const T* y, TokenStrides of_y, std::int64_t y_step, std::int64_t heads,
                      std::int64_t slots, std::int64_t width, std::int64_t groups) {
  __shared__ float warps[kThreads / kWarp];
  const std::int64_t group = quotient(blockIdx.x, slots), r = blockIdx.x - group * slots;
  const std::int64_t b = quotient(group, groups), g = group - b * groups, each = heads / groups;
  float sum = 0;
  for (std::int64_t i = threadIdx.x; i < each * width; i += kThreads) {
    const std::int64_t h = g * each + quotient(i, width), c = i % width;
    sum +=
        to_float(dy[of_dy.at(b, h, r) + c * dy_step]) * to_float(y[of_y.at(b, h, r) + c * y_step]);
  }
  sum = block_sum<kThreads>(sum, warps);
  if (threadIdx.x == 0) share[blockIdx.x] = sum;
}

template <class T>
void scale_slots(StreamRef stream, const char* launcher, const View& y, const View& x,
                 const View& mass, const View& total) {
  const std::int64_t n = x.numel();
  if (n == 0) return;
  slot_scale_kernel<<<blocks_for(n, kThreads), kThreads, 0, stream_of(stream)>>>(
      y.ptr<T>(), TokenStrides(y), y.stride[3], x.ptr<const T>(), TokenStrides(x), x.stride[3],
      mass.ptr<float>(), total.ptr<float>(), x.dim[1], x.dim[2], x.dim[3], total.dim[0], n);
  check_launch(launcher);
}

}  // namespace

void keep_valid(StreamRef stream, const View& to, const View& from, const View& valid) {
  const std::int64_t n = to.numel(), heads = to.dim[1], tokens = to.dim[2], width = to.dim[3];
  if (n == 0) return;
  const TokenStrides of_to(to), of_from(from);
  const bool packs =
      is_packable(to, width) && is_packable(from, width) && of_to.packs() && of_from.packs();
  for_float(to.dtype, "keep_valid", [&](auto zero) {
    using T = decltype(zero);
    const auto launch = [&](auto kernel, std::int64_t unit) {
      kernel<<<blocks_for(n / unit, kThreads), kThreads, 0, stream_of(stream)>>>(
          to.ptr<T>(), of_to, from.ptr<const T>(), of_from, ValidTokens(valid), heads, tokens,
          width / unit, n / unit);
    };
    if (packs)
      launch(keep_valid_kernel<kVector, T>, kVector);
    else
      launch(keep_valid_kernel<1, T>, 1);
    check_launch("keep_valid");
  });
}

void any_valid(StreamRef stream, const View& any, const View& valid, std::int64_t block,
               std::int64_t slots) {
  const std::int64_t blocks = any.dim[1] / slots;
  if (any.dim[0] * blocks == 0) return;
  any_valid_kernel<<<static_cast<unsigned>(any.dim[0] * blocks), kThreads, 0, stream_of(stream)>>>(
      any.ptr<std::uint8_t>(), ValidTokens(valid), blocks, block, slots);
  check_launch("any_valid");
}

void slot_mass_forward(StreamRef stream, const View& mass, const View& total, const View& e,
                       const View& valid, std::int64_t tokens) {
  const std::int64_t slots = e.rows();
  if (slots == 0) return;
  for_float(e.dtype, "slot_mass", [&](auto zero) {
    using T = decltype(zero);
    slot_mass_kernel<<<static_cast<unsigned>(slots), kThreads, 0, stream_of(stream)>>>(
        mass.ptr<float>(), total.ptr<float>(), e.ptr<const T>(), ValidTokens(valid), slots,
        e.cols(), tokens, mass.dim[0]);
    check_launch("slot_mass");
  });
}

void slot_mass_backward(StreamRef stream, const View& de, const View& share, const View& mass,
                        const View& total, const View& e, const View& valid, std::int64_t tokens) {
  const std::int64_t n = e.numel();
  if (n == 0) return;
  for_float(e.dtype, "slot_mass_backward", [&](auto zero) {
    using T = decltype(zero);
    slot_mass_backward_kernel<<<blocks_for(n, kThreads), kThreads, 0, stream_of(stream)>>>(
        de.ptr<float>(), share.ptr<float>(), mass.ptr<float>(), total.ptr<float>(),
        e.ptr<const T>(), ValidTokens(valid), e.rows(), e.cols(), tokens, mass.dim[0]);
    check_launch("slot_mass_backward");
  });
}

void slot_scale_forward(StreamRef stream, const View& y, const View& x, const View& mass,
                        const View& total) {
  for_float(x.dtype, "slot_scale", [&](auto zero) {
    scale_slots<decltype(zero)>(stream, "slot_scale", y, x, mass, total);
  });
}

void slot_scale_backward(StreamRef stream, const View& dx, const View& share, const View& dy,
                         const View& y, const View& mass, const View& total) {
  const std::int64_t rows = y.dim[0] * total.dim[0] * y.dim[2];
  for_float(y.dtype, "slot_scale_backward", [&](auto zero) {
    using T = decltype(zero);
    if (dx) scale_slots<T>(stream, "slot_scale_backward", dx, dy, mass, total);
    if (!share || rows == 0) return;
    slot_share_kernel<<<static_cast<unsigned>(rows), kThreads, 0, stream_of(stream)>>>(
        share.ptr<float>(), dy.ptr<const T>(), TokenStrides(dy), dy.stride[3], y.ptr<const T>(),
        TokenStrides(y), y.stride[3], y.dim[1], y.dim[2], y.dim[3], total.dim[0]);
    check_launch("slot_scale_backward");
  });
}

}  // namespace fovea::cuda
