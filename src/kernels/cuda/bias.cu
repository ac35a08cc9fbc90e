// Bias gradients, and bias with GELU in one pass.

#include "kernels/bias.h"
#include "kernels/cuda/tile/gelu.cuh"
#include "kernels/cuda/tile/map.cuh"
#include "kernels/cuda/tile/partials.cuh"

namespace fovea::cuda {

namespace {

constexpr int kThreads = 256;
// Rows of one partial sum. The first loads of a block wait for nothing and are waited for: more
// rows hide them, as long as there are blocks enough.
constexpr int kSumRows = 128, kMostSumRows = 512;
constexpr std::int64_t kEnoughBlocks = 1024;
constexpr std::int64_t kMostSlabs = 65535;  // of a grid's second axis
constexpr int kSumUnroll = 4;               // rows in flight a thread
constexpr int kNarrowLanes = 8;
constexpr int kWideLanes = 32;

// One pack of x, whose values are summed.
template <int kWidth, class T>
struct Plain {
  const T* x;
  struct Loaded {
    Packed<T, kWidth> a;
  };
  struct Column {};
  __device__ __forceinline__ Column column(std::int64_t /*at*/) const { return {}; }
  __device__ __forceinline__ void load(Loaded& to, std::int64_t at) const { to.a.load(x + at); }
  __device__ __forceinline__ void finish(float (&v)[kWidth], const Loaded& from,
                                         const Column& /*own*/, std::int64_t /*at*/) const {
    from.a.unpack(v);
  }
};

// One pack of dpre = dout gelu'(product + bias), which is written and summed before it is rounded.
template <int kWidth, class T>
struct GeluBackward {
  T* dpre;
  const T* dout;
  const T* product;
  const T* bias;
  struct Loaded {
    Packed<T, kWidth> d, x;
  };
  // What stays for all rows of a column; unpacked late, so that no row's load waits for it.
  struct Column {
    Packed<T, kWidth> bias;
  };
  __device__ __forceinline__ Column column(std::int64_t at) const {
    Column out;
    if (bias != nullptr) out.bias.load(bias + at);
    return out;
  }
  __device__ __forceinline__ void load(Loaded& to, std::int64_t at) const {
    to.x.load(product + at);
    to.d.load(dout + at);
  }
  __device__ __forceinline__ void finish(float (&v)[kWidth], const Loaded& from, const Column& own,
                                         std::int64_t at) const {
    float x[kWidth], b[kWidth] = {};
    from.x.unpack(x);
    from.d.unpack(v);
    if (bias != nullptr) own.bias.unpack(b);
#pragma unroll
    for (int i = 0; i < kWidth; ++i)
      v[i] *= gelu_slope<T>(x[i] + b[i]);
    store_packed(dpre + at, v);
  }
};

// Column sums of `slab` rows. A block has kLanes packs of columns (x) and one slab of rows (y);
// its groups of kLanes threads take every so many-th row and are added in order. Reads each input
// once; partial [slabs, cols] is written once.
template <int kWidth, int kLanes, class Rows>
__global__ void __launch_bounds__(kThreads)
    column_sum_kernel(float* partial, const Rows from, std::int64_t rows, std::int64_t cols,
                      std::int64_t slab) {
  constexpr int kGroups = kThreads / kLanes, kColumns = kLanes * kWidth;
  __shared__ float sums[kGroups][kColumns];
  const int lane = static_cast<int>(threadIdx.x) % kLanes,
            group = static_cast<int>(threadIdx.x) / kLanes;
  const std::int64_t first = std::int64_t{blockIdx.x} * kColumns, column = first + lane * kWidth;
  const std::int64_t begin = blockIdx.y * slab, end = begin + slab < rows ? begin + slab : rows;
  float sum[kWidth] = {};
  if (column < cols) {
    const typename Rows::Column own = from.column(column);
    for (std::int64_t row = begin + group; row < end; row += kGroups * kSumUnroll) {
      typename Rows::Loaded loaded[kSumUnroll];
#pragma unroll
      for (int u = 0; u < kSumUnroll; ++u) {
        if (row + u * kGroups < end) from.load(loaded[u], (row + u * kGroups) * cols + column);
      }
#pragma unroll
      for (int u = 0; u < kSumUnroll; ++u) {
        if (row + u * kGroups >= end) continue;
        float v[kWidth];
        from.finish(v, loaded[u], own, (row + u * kGroups) * cols + column);
#pragma unroll
        for (int i = 0; i < kWidth; ++i)
          sum[i] += v[i];
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kWidth; ++i)
    sums[group][lane * kWidth + i] = sum[i];
  __syncthreads();
  const int mine = static_cast<int>(threadIdx.x);
  if (mine >= kColumns || first + mine >= cols) return;
  float total = 0;
#pragma unroll
  for (int g = 0; g < kGroups; ++g)
    total += sums[g][mine];
  partial[blockIdx.y * cols + first + mine] = total;
}

// `total` null: the rows are walked for what else `from` does with them.
template <template <int, class> class Rows, int kWidth, class T>
void sum_columns(StreamRef stream, const char* launcher, float* total, const Rows<kWidth, T>& from,
                 std::int64_t rows, std::int64_t cols) {
  const std::int64_t wide = cols / (kWideLanes * kWidth), across = wide > 0 ? wide : 1;
  std::int64_t slab = kSumRows;
  while (slab < kMostSumRows && rows / (2 * slab) * across >= kEnoughBlocks)
    slab *= 2;
  while (rows > slab * kMostSlabs)
    slab *= 2;
  const std::int64_t slabs = (rows + slab - 1) / slab;
  auto* const partial = static_cast<float*>(
      scratch(stream, static_cast<std::size_t>(slabs * cols) * sizeof(float), launcher));
  const auto go = [&](auto lanes, auto kernel) {
    const dim3 grid(blocks_for(cols, lanes * kWidth), static_cast<unsigned>(slabs));
    kernel<<<grid, kThreads, 0, stream_of(stream)>>>(partial, from, rows, cols, slab);
    check_launch(launcher);
  };
  if (cols <= kNarrowLanes * kWidth)
    go(kNarrowLanes, column_sum_kernel<kWidth, kNarrowLanes, Rows<kWidth, T>>);
  else
    go(kWideLanes, column_sum_kernel<kWidth, kWideLanes, Rows<kWidth, T>>);
  if (total != nullptr) add_partials(stream, launcher, {{total}}, 1, partial, slabs, cols);
}

constexpr int kUnroll = 2;  // packs in flight a thread

// One pass: reads product once, writes out once.
template <int kWidth, class T>
__global__ void __launch_bounds__(kThreads)
    bias_gelu_kernel(T* out, const T* product, const T* bias, std::int64_t packs,
                     std::int64_t packs_per_row) {
  const std::int64_t first = std::int64_t{blockIdx.x} * kThreads * kUnroll + threadIdx.x;
  Packed<T, kWidth> in[kUnroll], add[kUnroll];
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const std::int64_t at = first + u * kThreads;
    if (at >= packs) continue;
    in[u].load(product + at * kWidth);
    if (bias != nullptr)
      add[u].load(bias + (at - quotient(at, packs_per_row) * packs_per_row) * kWidth);
  }
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const std::int64_t at = first + u * kThreads;
    if (at >= packs) continue;
    float x[kWidth], b[kWidth];
    in[u].unpack(x);
    if (bias != nullptr) {
      add[u].unpack(b);
#pragma unroll
      for (int i = 0; i < kWidth; ++i)
        x[i] += b[i];
    }
#pragma unroll
    for (int i = 0; i < kWidth; ++i)
      x[i] = gelu<T>(x[i]);
    store_packed(out + at * kWidth, x);
  }
}

}  // namespace

void column_sum(StreamRef stream, const View& total, const View& x) {
  const std::int64_t rows = x.rows(), cols = x.cols();
  if (rows == 0 || cols == 0) return;
  for_float(x.dtype, "column_sum", [&](auto zero) {
    using T = decltype(zero);
    if (is_packable(x, cols)) {
      sum_columns(stream, "column_sum", total.ptr<float>(), Plain<kVector, T>{x.ptr<T>()}, rows,
                  cols);
    } else {
      sum_columns(stream, "column_sum", total.ptr<float>(), Plain<1, T>{x.ptr<T>()}, rows, cols);
    }
  });
}

void bias_gelu_forward(StreamRef stream, const View& out, const View& product, const View& bias) {
  const std::int64_t n = out.numel(), cols = out.cols();
  if (n == 0) return;
  for_float(out.dtype, "bias_gelu", [&](auto zero) {
    using T = decltype(zero);
    const auto go = [&](int width, auto kernel) {
      const std::int64_t packs = n / width;
      kernel<<<blocks_for(packs, kThreads * kUnroll), kThreads, 0, stream_of(stream)>>>(
          out.ptr<T>(), product.ptr<T>(), bias.ptr<T>(), packs, cols / width);
      check_launch("bias_gelu");
    };
    if (is_packable(out, cols) && is_packable(product, cols) && is_packable(bias, cols))
      go(kVector, bias_gelu_kernel<kVector, T>);
    else
      go(1, bias_gelu_kernel<1, T>);
  });
}

void bias_gelu_backward(StreamRef stream, const View& dpre, const View& dbias, const View& dout,
                        const View& product, const View& bias) {
  const std::int64_t rows = dpre.rows(), cols = dpre.cols();
  if (rows == 0 || cols == 0) return;
  for_float(dpre.dtype, "bias_gelu_backward", [&](auto zero) {
    using T = decltype(zero);
    const auto go = [&](auto from) {
      sum_columns(stream, "bias_gelu_backward", dbias.ptr<float>(), from, rows, cols);
    };
    T* const to = dpre.ptr<T>();
    const T *const d = dout.ptr<T>(), *const x = product.ptr<T>(), *const b = bias.ptr<T>();
    if (is_packable(dpre, cols) && is_packable(dout, cols) && is_packable(product, cols) &&
        is_packable(bias, cols))
      go(GeluBackward<kVector, T>{to, d, x, b});
    else
      go(GeluBackward<1, T>{to, d, x, b});
  });
}

}  // namespace fovea::cuda
