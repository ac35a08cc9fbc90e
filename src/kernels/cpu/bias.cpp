#include "kernels/bias.h"

#include "core/parallel.h"
#include "kernels/cpu/gelu.h"
#include "kernels/cpu/lanes.h"

namespace fovea::cpu::FOVEA_ISA {

namespace {

constexpr std::int64_t kSumRows = 128;

// Calls block(begin, end, sums) for fixed blocks of rows; block adds its rows' columns to sums
// [cols] of A, which start at 0. The sums are then added to `total` in the order of the blocks.
template <class A, class F>
void sum_columns(StreamRef stream, const View& total, std::int64_t rows, std::int64_t cols,
                 F&& block) {
  const std::int64_t blocks = (rows + kSumRows - 1) / kSumRows;
  Scratch<A> partials(blocks * cols);
  parallel_for(stream, rows, kSumRows, [&](std::int64_t begin, std::int64_t end) {
    A* const sums = partials.data() + begin / kSumRows * cols;
    for (std::int64_t j = 0; j < cols; ++j)
      sums[j] = 0;
    block(begin, end, sums);
  });
  parallel_for(stream, cols, 1024, [&](std::int64_t begin, std::int64_t end) {
    A* const out = total.ptr<A>();
    for (std::int64_t b = 0; b < blocks; ++b) {
      for (std::int64_t j = begin; j < end; ++j)
        out[j] += partials[b * cols + j];
    }
  });
}

}  // namespace

void column_sum(StreamRef stream, const View& total, const View& x) {
  const std::int64_t cols = x.cols();
  for_float(x.dtype, [&]<class T>(T*) {
    using A = Compute<T>;
    sum_columns<A>(stream, total, x.rows(), cols,
                   [&](std::int64_t begin, std::int64_t end, A* sums) {
                     for (std::int64_t row = begin; row < end; ++row) {
                       const T* const at = x.ptr<T>() + row * cols;
                       for_lanes<T>(cols, [&](std::int64_t i, auto count) {
                         put(sums + i, take(sums + i, count) + take(at + i, count), count);
                       });
                     }
                   });
  });
}

void bias_gelu_forward(StreamRef stream, const View& out, const View& product, const View& bias) {
  const std::int64_t cols = out.cols();
  for_float(out.dtype, [&]<class T>(T*) {
    parallel_for(stream, out.rows(), grain_rows(cols), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const std::int64_t start = row * cols;
        for_lanes<T>(cols, [&](std::int64_t i, auto count) {
          auto x = take(product.ptr<T>() + start + i, count);
          if (bias) x += take(bias.ptr<T>() + i, count);
          put(out.ptr<T>() + start + i, gelu<T>(x), count);
        });
      }
    });
  });
}

void bias_gelu_backward(StreamRef stream, const View& dpre, const View& dbias, const View& dout,
                        const View& product, const View& bias) {
  const std::int64_t cols = dpre.cols(), rows = dpre.rows();
  for_float(dpre.dtype, [&]<class T>(T*) {
    using A = Compute<T>;
    const auto block = [&](std::int64_t begin, std::int64_t end, A* sums) {
      for (std::int64_t row = begin; row < end; ++row) {
        const std::int64_t start = row * cols;
        for_lanes<T>(cols, [&](std::int64_t i, auto count) {
          auto x = take(product.ptr<T>() + start + i, count);
          if (bias) x += take(bias.ptr<T>() + i, count);
          const auto d = take(dout.ptr<T>() + start + i, count) * gelu_slope<T>(x);
          put(dpre.ptr<T>() + start + i, d, count);
          if (sums != nullptr) put(sums + i, take(sums + i, count) + d, count);
        });
      }
    };
    if (dbias) {
      sum_columns<A>(stream, dbias, rows, cols, block);
    } else {
      parallel_for(stream, rows, kSumRows,
                   [&](std::int64_t begin, std::int64_t end) { block(begin, end, nullptr); });
    }
  });
}

}  // namespace fovea::cpu::FOVEA_ISA
