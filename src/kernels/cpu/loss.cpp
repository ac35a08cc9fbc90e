#include "kernels/loss.h"

#include <cmath>
#include <type_traits>

#include "core/parallel.h"
#include "kernels/cpu/lanes.h"

namespace fovea::cpu::FOVEA_ISA {

namespace {

// The entry of targets, loss and correct that row r of the logits stands for.
std::int64_t entry(const View& rows, std::int64_t r) {
  return rows ? rows.ptr<std::int32_t>()[r] : r;
}

// Calls fn(r) for all rows of `cols` elements, in parallel.
template <class F>
void each_row(StreamRef stream, std::int64_t rows, std::int64_t cols, F&& fn) {
  parallel_for(stream, rows, grain_rows(cols), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r)
      fn(r);
  });
}

template <class T>
bool is_first_largest(const T* x, std::int64_t target, Compute<T> largest) {
  if (load_one(x + target) != largest) return false;
  for (std::int64_t j = 0; j < target; ++j) {
    if (load_one(x + j) == largest) return false;
  }
  return true;
}

}  // namespace

void cross_entropy_forward(StreamRef stream, const View& loss, const View& correct, const View& lse,
                           const View& logits, const View& targets, const View& rows) {
  const std::int64_t cols = logits.cols();
  for_float(logits.dtype, [&]<class T>(T*) {
    using A = Compute<T>;
    constexpr A kLowest = -static_cast<A>(HUGE_VAL);
    each_row(stream, logits.rows(), cols, [&](std::int64_t r) {
      const std::int64_t at = entry(rows, r), target = targets.ptr<std::int32_t>()[at];
      A& row_loss = loss.ptr<A>()[at];
      if (target < 0) {
        row_loss = 0;
        if (correct) correct.ptr<std::uint8_t>()[at] = 0;
        lse.ptr<A>()[r] = 0;
        return;
      }
      const T* const x = logits.ptr<T>() + r * logits.stride[0];
      auto top = every<T>(static_cast<double>(kLowest));
      for_lanes<T>(
          cols, [&](std::int64_t i, auto count) { top = max(top, take(x + i, count, kLowest)); });
      const A largest = max_lane(top);
      const auto shift = every<T>(static_cast<double>(largest));
      auto total = every<T>(0);
      for_lanes<T>(cols, [&](std::int64_t i, auto count) {
        total += exp(take(x + i, count, kLowest) - shift);
      });
      const A log_total = std::log(sum(total));
      lse.ptr<A>()[r] = largest + log_total;
      // Not lse - x: the difference of two large numbers would lose what a small loss is made of.
      row_loss = log_total + (largest - load_one(x + target));
      if (correct) correct.ptr<std::uint8_t>()[at] = is_first_largest(x, target, largest) ? 1 : 0;
    });
  });
}

void cross_entropy_backward(StreamRef stream, const View& dlogits, const View& logits,
                            const View& lse, const View& targets, const View& rows,
                            const View& dloss) {
  const std::int64_t cols = logits.cols();
  for_float(logits.dtype, [&]<class T>(T*) {
    using A = Compute<T>;
    const A factor = dloss ? *dloss.ptr<A>() : A{1};
    for_float(dlogits.dtype, [&]<class D>(D*) {
      // Both f64 or neither: the vectors of the two types must agree.
      if constexpr (std::is_same_v<T, double> == std::is_same_v<D, double>) {
        each_row(stream, logits.rows(), cols, [&](std::int64_t r) {
          const std::int64_t target = targets.ptr<std::int32_t>()[entry(rows, r)];
          const T* const x = logits.ptr<T>() + r * logits.stride[0];
          D* const dx = dlogits.ptr<D>() + r * dlogits.stride[0];
          for (std::int64_t j = cols; j < dlogits.stride[0]; ++j)
            store_one(dx + j, Compute<D>{0});
          if (target < 0) {
            for (std::int64_t j = 0; j < cols; ++j)
              store_one(dx + j, Compute<D>{0});
            return;
          }
          const A log_total = lse.ptr<A>()[r];
          // Read before dx is written: they may be one tensor.
          const A at_target = factor * (exp(load_one(x + target) - log_total) - A{1});
          const auto shift = every<T>(static_cast<double>(log_total));
          const auto scale = every<T>(static_cast<double>(factor));
          for_lanes<T>(cols, [&](std::int64_t i, auto count) {
            put(dx + i, scale * exp(take(x + i, count) - shift), count);
          });
          store_one(dx + target, at_target);
        });
      }
    });
  });
}

void cross_entropy_both(StreamRef stream, const View& loss, const View& lse, const View& logits,
                        const View& targets, const View& rows, const View& dloss) {
  cross_entropy_forward(stream, loss, View{}, lse, logits, targets, rows);
  cross_entropy_backward(stream, logits, logits, lse, targets, rows, dloss);
}

void scaled_rows_forward(StreamRef stream, const View& to, const View& from, const View& rows,
                         const View& alpha) {
  const std::int64_t cols = from.cols();
  const double factor =
      alpha.dtype == DType::f64 ? *alpha.ptr<double>() : static_cast<double>(*alpha.ptr<float>());
  for_float(from.dtype, [&]<class T>(T*) {
    const auto scale = every<T>(factor);
    each_row(stream, from.rows(), cols, [&](std::int64_t r) {
      const T* const x = from.ptr<T>() + r * cols;
      T* const y = to.ptr<T>() + entry(rows, r) * cols;
      for_lanes<T>(
          cols, [&](std::int64_t i, auto count) { put(y + i, scale * take(x + i, count), count); });
    });
  });
}

}  // namespace fovea::cpu::FOVEA_ISA
