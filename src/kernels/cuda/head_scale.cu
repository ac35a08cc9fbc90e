// One factor a head.

#include "kernels/cuda/tile/packed.cuh"
#include "kernels/cuda/tile/partials.cuh"
#include "kernels/cuda/tile/reduce.cuh"
#include "kernels/cuda/tile/tokens.cuh"
#include "kernels/head_scale.h"

namespace fovea::cuda {

namespace {

constexpr int kThreads = 256;
// Blocks that add one head's products: enough for a whole GPU from eight heads on.
constexpr std::int64_t kParts = 64;

bool packs(const View& x) {
  return TokenStrides(x).packs() && is_packable(x, x.dim[3]);
}

// A unit a thread, heads inside tokens: the order of packed projections. Reads x once, writes y
// once.
template <int kWidth, class T>
__global__ void __launch_bounds__(kThreads)
    scale_kernel(T* y, TokenStrides of_y, const T* x, TokenStrides of_x,
                 const float* __restrict__ factor, std::int64_t heads, std::int64_t tokens,
                 std::int64_t units, std::int64_t count) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= count) return;
  const std::int64_t row = quotient(i, units), unit = i - row * units;
  const std::int64_t token = quotient(row, heads), h = row - token * heads;
  const std::int64_t b = quotient(token, tokens), n = token - b * tokens;
  Packed<T, kWidth> in;
  in.load(x + of_x.at(b, h, n) + unit * kWidth);
  float values[kWidth];
  in.unpack(values);
  const float by = factor[h];
#pragma unroll
  for (int e = 0; e < kWidth; ++e)
    values[e] *= by;
  store_packed(y + of_y.at(b, h, n) + unit * kWidth, values);
}

// Block (part, head): partial[part, head] = the products of a run of (b, n), threads strided, then
// added in a fixed order. Reads a and b once.
template <class T>
__global__ void __launch_bounds__(kThreads)
    product_kernel(float* __restrict__ partial, const T* __restrict__ a, TokenStrides of_a,
                   const T* __restrict__ b, TokenStrides of_b, std::int64_t tokens,
                   std::int64_t width, std::int64_t rows) {
  __shared__ float warps[kThreads / kWarp];
  const std::int64_t run = (rows + gridDim.x - 1) / gridDim.x, begin = blockIdx.x * run,
                     end = begin + run < rows ? begin + run : rows;
  float sum = 0;
  for (std::int64_t i = begin * width + threadIdx.x; i < end * width; i += kThreads) {
    const std::int64_t row = quotient(i, width), c = i - row * width;
    const std::int64_t sample = quotient(row, tokens), n = row - sample * tokens;
    sum += to_float(a[of_a.at(sample, blockIdx.y, n) + c]) *
           to_float(b[of_b.at(sample, blockIdx.y, n) + c]);
  }
  sum = block_sum<kThreads>(sum, warps);
  if (threadIdx.x == 0) partial[std::int64_t{blockIdx.x} * gridDim.y + blockIdx.y] = sum;
}

}  // namespace

void head_scale_forward(StreamRef stream, const View& y, const View& x, const View& factor) {
  if (x.numel() == 0) return;
  const std::int64_t heads = x.dim[1], tokens = x.dim[2], width = x.dim[3];
  for_float(x.dtype, "head_scale", [&](auto zero) {
    using T = decltype(zero);
    const auto launch = [&](auto kernel, std::int64_t units) {
      const std::int64_t count = x.dim[0] * tokens * heads * units;
      kernel<<<blocks_for(count, kThreads), kThreads, 0, stream_of(stream)>>>(
          y.ptr<T>(), TokenStrides(y), x.ptr<const T>(), TokenStrides(x), factor.ptr<const float>(),
          heads, tokens, units, count);
    };
    if (packs(x) && packs(y))
      launch(scale_kernel<kVector, T>, width / kVector);
    else
      launch(scale_kernel<1, T>, width);
    check_launch("head_scale");
  });
}

void head_product_sum(StreamRef stream, const View& total, const View& a, const View& b) {
  if (a.numel() == 0) return;
  const std::int64_t heads = a.dim[1], tokens = a.dim[2], rows = a.dim[0] * tokens;
  const std::int64_t parts = rows < kParts ? rows : kParts;
  auto* const partial = static_cast<float*>(
      scratch(stream, static_cast<std::size_t>(parts * heads) * sizeof(float), "head_product_sum"));
  for_float(a.dtype, "head_product_sum", [&](auto zero) {
    using T = decltype(zero);
    const dim3 grid(static_cast<unsigned>(parts), static_cast<unsigned>(heads));
    product_kernel<<<grid, kThreads, 0, stream_of(stream)>>>(
        partial, a.ptr<const T>(), TokenStrides(a), b.ptr<const T>(), TokenStrides(b), tokens,
        a.dim[3], rows);
    check_launch("head_product_sum");
  });
  add_partials(stream, "head_product_sum", Totals{{total.ptr<float>(), nullptr, nullptr}}, 1,
               partial, parts, heads);
}

}  // namespace fovea::cuda
