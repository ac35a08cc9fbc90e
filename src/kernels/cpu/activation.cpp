#include "kernels/activation.h"

#include "core/parallel.h"
#include "kernels/cpu/gelu.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/random.h"

namespace fovea::cpu::FOVEA_ISA {

namespace {

template <class T, class V>
V sigmoid(V x) {
  return every<T>(1) / (every<T>(1) + exp(-x));
}

// Calls fn(row) for all rows of about `cols` elements, in parallel.
template <class F>
void each_row(StreamRef stream, std::int64_t rows, std::int64_t cols, F&& fn) {
  parallel_for(stream, rows, grain_rows(cols), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row)
      fn(row);
  });
}

template <class T>
void softmax_row(T* y, const T* x, std::int64_t cols) {
  using A = Compute<T>;
  constexpr A kLowest = -static_cast<A>(HUGE_VAL);
  auto top = every<T>(kLowest);
  for_lanes<T>(cols,
               [&](std::int64_t i, auto count) { top = max(top, take(x + i, count, kLowest)); });
  const auto shift = every<T>(static_cast<double>(max_lane(top)));
  auto total = every<T>(0);
  for_lanes<T>(
      cols, [&](std::int64_t i, auto count) { total += exp(take(x + i, count, kLowest) - shift); });
  const auto whole = every<T>(static_cast<double>(sum(total)));
  for_lanes<T>(cols, [&](std::int64_t i, auto count) {
    put(y + i, exp(take(x + i, count) - shift) / whole, count);
  });
}

template <class T>
void softmax_backward_row(T* dx, const T* dy, const T* y, std::int64_t cols) {
  auto dot = every<T>(0);
  for_lanes<T>(
      cols, [&](std::int64_t i, auto count) { dot += take(dy + i, count) * take(y + i, count); });
  const auto mean = every<T>(static_cast<double>(sum(dot)));
  for_lanes<T>(cols, [&](std::int64_t i, auto count) {
    put(dx + i, take(y + i, count) * (take(dy + i, count) - mean), count);
  });
}

}  // namespace

void gelu_forward(StreamRef stream, const View& y, const View& x) {
  for_float(x.dtype, [&]<class T>(T*) {
    parallel_for(stream, x.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
      for_lanes<T>(end - begin, [&](std::int64_t i, auto count) {
        put(y.ptr<T>() + begin + i, gelu<T>(take(x.ptr<T>() + begin + i, count)), count);
      });
    });
  });
}

void gelu_backward(StreamRef stream, const View& dx, const View& dy, const View& x) {
  for_float(x.dtype, [&]<class T>(T*) {
    parallel_for(stream, x.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
      for_lanes<T>(end - begin, [&](std::int64_t i, auto count) {
        const auto slope = gelu_slope<T>(take(x.ptr<T>() + begin + i, count));
        put(dx.ptr<T>() + begin + i, take(dy.ptr<T>() + begin + i, count) * slope, count);
      });
    });
  });
}

void swiglu_forward(StreamRef stream, const View& y, const View& x) {
  const std::int64_t cols = y.cols();
  for_float(x.dtype, [&]<class T>(T*) {
    each_row(stream, y.rows(), 2 * cols, [&](std::int64_t row) {
      const T* const gate = x.ptr<T>() + row * 2 * cols;
      for_lanes<T>(cols, [&](std::int64_t i, auto count) {
        const auto g = take(gate + i, count);
        put(y.ptr<T>() + row * cols + i, g * sigmoid<T>(g) * take(gate + cols + i, count), count);
      });
    });
  });
}

void swiglu_backward(StreamRef stream, const View& dx, const View& dy, const View& x) {
  const std::int64_t cols = dy.cols();
  for_float(x.dtype, [&]<class T>(T*) {
    each_row(stream, dy.rows(), 2 * cols, [&](std::int64_t row) {
      const T* const gate = x.ptr<T>() + row * 2 * cols;
      T* const dgate = dx.ptr<T>() + row * 2 * cols;
      for_lanes<T>(cols, [&](std::int64_t i, auto count) {
        const auto g = take(gate + i, count), up = take(gate + cols + i, count);
        const auto d = take(dy.ptr<T>() + row * cols + i, count);
        const auto s = sigmoid<T>(g), one = every<T>(1);
        put(dgate + i, d * up * s * (one + g * (one - s)), count);
        put(dgate + cols + i, d * g * s, count);
      });
    });
  });
}

void softmax_forward(StreamRef stream, const View& y, const View& x) {
  for_float(x.dtype, [&]<class T>(T*) {
    each_row(stream, x.rows(), x.cols(), [&](std::int64_t row) {
      softmax_row(y.ptr<T>() + row * x.cols(), x.ptr<T>() + row * x.cols(), x.cols());
    });
  });
}

void softmax_backward(StreamRef stream, const View& dx, const View& dy, const View& y) {
  for_float(y.dtype, [&]<class T>(T*) {
    each_row(stream, y.rows(), y.cols(), [&](std::int64_t row) {
      const std::int64_t at = row * y.cols();
      softmax_backward_row(dx.ptr<T>() + at, dy.ptr<T>() + at, y.ptr<T>() + at, y.cols());
    });
  });
}

void dropout_forward(StreamRef stream, const View& y, const View& x, double p, const Key& key) {
  const std::int64_t n = x.numel();
  if (n == 0) return;
  const std::int64_t first = key.at ? key.at->first_sample * (n / (x.rank == 0 ? 1 : x.dim[0])) : 0;
  const auto threshold = static_cast<std::uint32_t>(std::lround(p * 16777216.0));
  for_float(x.dtype, [&]<class T>(T*) {
    using A = Compute<T>;
    const A kept = static_cast<A>(1 / (1 - p));
    parallel_for(stream, n, kGrain, [&](std::int64_t begin, std::int64_t end) {
      RandomBlock block(key);
      for (std::int64_t i = begin; i < end;) {
        const std::int64_t offset = block.fill(static_cast<std::uint64_t>(first + i));
        const std::int64_t count =
            end - i < RandomBlock::kSize - offset ? end - i : RandomBlock::kSize - offset;
        const std::uint32_t* const bits = block.bits() + offset;
        const T* const from = x.ptr<T>() + i;
        T* const to = y.ptr<T>() + i;
        for (std::int64_t j = 0; j < count; ++j) {
          store_one(to + j, (bits[j] >> 8) < threshold ? A{0} : load_one(from + j) * kept);
        }
        i += count;
      }
    });
  });
}

}  // namespace fovea::cpu::FOVEA_ISA
