#include "kernels/norm.h"

#include "core/parallel.h"
#include "kernels/bias.h"
#include "kernels/cpu/lanes.h"

namespace fovea::cpu::FOVEA_ISA {

namespace {

// Layer norm (centred) and RMS norm differ by the mean alone.
template <class T, bool kCentred>
class RowNorm {
 public:
  using A = Compute<T>;
  RowNorm(const T* gamma, const T* beta, std::int64_t cols, double eps)
      : gamma_(gamma), beta_(beta), cols_(cols), eps_(eps) {}

  // The second pass subtracts the mean first: E[x^2] - mean^2 would cancel.
  void forward(T* y, A* mean, A* rstd, const T* x) const {
    A centre = 0;
    if constexpr (kCentred) {
      auto total = every<T>(0);
      for_lanes<T>(cols_, [&](std::int64_t i, auto count) { total += take(x + i, count); });
      centre = sum(total) / static_cast<A>(cols_);
      *mean = centre;
    }
    const auto shift = every<T>(static_cast<double>(centre));
    auto squares = every<T>(0);
    for_lanes<T>(cols_, [&](std::int64_t i, auto count) {
      const auto v = take(x + i, count, centre) - shift;
      squares += v * v;
    });
    *rstd = 1 / std::sqrt(sum(squares) / static_cast<A>(cols_) + static_cast<A>(eps_));
    const auto factor = every<T>(static_cast<double>(*rstd));
    for_lanes<T>(cols_, [&](std::int64_t i, auto count) {
      auto v = (take(x + i, count) - shift) * factor * take(gamma_ + i, count);
      if (beta_ != nullptr) v += take(beta_ + i, count);
      put(y + i, v, count);
    });
  }

  // dx = rstd (g - mean(g) - xhat mean(g xhat)) + dsum with g = dy gamma; RMS norm has no mean(g).
  void backward(T* dx, const T* dy, const T* dsum, const T* x, A mean, A rstd) const {
    const auto shift = every<T>(static_cast<double>(mean)),
               factor = every<T>(static_cast<double>(rstd));
    auto plain = every<T>(0), along = every<T>(0);
    for_lanes<T>(cols_, [&](std::int64_t i, auto count) {
      const auto g = take(dy + i, count) * take(gamma_ + i, count);
      if constexpr (kCentred) plain += g;
      along += g * ((take(x + i, count) - shift) * factor);
    });
    const A n = static_cast<A>(cols_);
    const auto mean_g = every<T>(static_cast<double>(sum(plain) / n));
    const auto mean_along = every<T>(static_cast<double>(sum(along) / n));
    for_lanes<T>(cols_, [&](std::int64_t i, auto count) {
      const auto hat = (take(x + i, count) - shift) * factor;
      auto v = factor * (take(dy + i, count) * take(gamma_ + i, count) - mean_g - hat * mean_along);
      if (dsum != nullptr) v += take(dsum + i, count);
      put(dx + i, v, count);
    });
  }

  // Adds one row's share of the parameters' gradients.
  void backward_parameters(A* dgamma, A* dbeta, const T* dy, const T* x, A mean, A rstd) const {
    const auto shift = every<T>(static_cast<double>(mean)),
               factor = every<T>(static_cast<double>(rstd));
    for_lanes<T>(cols_, [&](std::int64_t i, auto count) {
      const auto d = take(dy + i, count);
      if (dgamma != nullptr) {
        put(dgamma + i, take(dgamma + i, count) + d * ((take(x + i, count) - shift) * factor),
            count);
      }
      if (dbeta != nullptr) put(dbeta + i, take(dbeta + i, count) + d, count);
    });
  }

 private:
  const T* gamma_;
  const T* beta_;
  std::int64_t cols_;
  double eps_;
};

template <bool kCentred>
void norm_forward(StreamRef stream, const View& y, const View& mean, const View& rstd,
                  const View& sum_out, const View& x, const View& branch, const View& gamma,
                  const View& beta, double eps) {
  const std::int64_t cols = x.cols();
  for_float(x.dtype, [&]<class T>(T*) {
    using A = Compute<T>;
    const RowNorm<T, kCentred> norm(gamma.ptr<T>(), beta.ptr<T>(), cols, eps);
    parallel_for(stream, x.rows(), grain_rows(cols), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const T* in = x.ptr<T>() + row * cols;
        if (branch) {
          T* const total = sum_out.ptr<T>() + row * cols;
          const T* const other = branch.ptr<T>() + row * cols;
          for_lanes<T>(cols, [&](std::int64_t i, auto count) {
            put(total + i, take(in + i, count) + take(other + i, count), count);
          });
          in = total;  // as rounded, so that fused and composed agree
        }
        norm.forward(y.ptr<T>() + row * cols, kCentred ? mean.ptr<A>() + row : nullptr,
                     rstd.ptr<A>() + row, in);
      }
    });
  });
}

// to[i] += the blocks' rows, block after block. `partial` [blocks, stride], cols elements from
// each.
template <class A>
void add_blocks(StreamRef stream, A* to, const A* partial, std::int64_t blocks, std::int64_t stride,
                std::int64_t cols) {
  if (to == nullptr) return;
  parallel_for(stream, cols, 1024, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = 0; block < blocks; ++block) {
      const A* const from = partial + block * stride;
      for (std::int64_t i = begin; i < end; ++i)
        to[i] += from[i];
    }
  });
}

template <bool kCentred>
void norm_backward(StreamRef stream, const View& dx, const View& dgamma, const View& dbeta,
                   const View& dy, const View& dsum, const View& x, const View& gamma,
                   const View& mean, const View& rstd) {
  const std::int64_t rows = x.rows(), cols = x.cols();
  for_float(x.dtype, [&]<class T>(T*) {
    using A = Compute<T>;
    const RowNorm<T, kCentred> norm(gamma.ptr<T>(), nullptr, cols, 0);
    const bool parameters = dgamma || dbeta;
    const std::int64_t block_rows = grain_rows(cols) < 16 ? 16 : grain_rows(cols);
    const std::int64_t blocks = (rows + block_rows - 1) / block_rows;
    const Scratch<A> partial(parameters ? blocks * 2 * cols : 0);
    parallel_for(stream, rows, block_rows, [&](std::int64_t begin, std::int64_t end) {
      A* const mine = partial.data() + begin / block_rows * 2 * cols;
      for (std::int64_t i = 0; parameters && i < 2 * cols; ++i)
        mine[i] = 0;
      for (std::int64_t row = begin; row < end; ++row) {
        const std::int64_t at = row * cols;
        const A centre = kCentred ? mean.ptr<A>()[row] : A{0}, scale = rstd.ptr<A>()[row];
        if (parameters) {
          norm.backward_parameters(dgamma ? mine : nullptr, dbeta ? mine + cols : nullptr,
                                   dy.ptr<T>() + at, x.ptr<T>() + at, centre, scale);
        }
        if (dx) {
          norm.backward(dx.ptr<T>() + at, dy.ptr<T>() + at, dsum ? dsum.ptr<T>() + at : nullptr,
                        x.ptr<T>() + at, centre, scale);
        }
      }
    });
    add_blocks(stream, dgamma.ptr<A>(), partial.data(), blocks, 2 * cols, cols);
    add_blocks(stream, dbeta.ptr<A>(), partial.data() + cols, blocks, 2 * cols, cols);
  });
}

}  // namespace

void layer_norm_forward(StreamRef stream, const View& y, const View& mean, const View& rstd,
                        const View& sum, const View& x, const View& branch, const View& gamma,
                        const View& beta, double eps) {
  norm_forward<true>(stream, y, mean, rstd, sum, x, branch, gamma, beta, eps);
}

// One view more than a kernel should have; the alternative is another pass over dx.
// NOLINTNEXTLINE(readability-function-size)
void layer_norm_backward(StreamRef stream, const View& dx, const View& dgamma, const View& dbeta,
                         const View& dy, const View& dsum, const View& x, const View& gamma,
                         const View& mean, const View& rstd, const View& dbranch_bias) {
  norm_backward<true>(stream, dx, dgamma, dbeta, dy, dsum, x, gamma, mean, rstd);
  if (dbranch_bias) column_sum(stream, dbranch_bias, dx);
}

void rms_norm_forward(StreamRef stream, const View& y, const View& rstd, const View& sum,
                      const View& x, const View& branch, const View& gamma, double eps) {
  norm_forward<false>(stream, y, {}, rstd, sum, x, branch, gamma, {}, eps);
}

void rms_norm_backward(StreamRef stream, const View& dx, const View& dgamma, const View& dy,
                       const View& dsum, const View& x, const View& gamma, const View& rstd,
                       const View& dbranch_bias) {
  norm_backward<false>(stream, dx, dgamma, {}, dy, dsum, x, gamma, {}, rstd);
  if (dbranch_bias) column_sum(stream, dbranch_bias, dx);
}

}  // namespace fovea::cpu::FOVEA_ISA
