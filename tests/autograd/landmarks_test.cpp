// The pseudo-inverse and the cut into segments, against what baselines.md 14 says in words.

#include "autograd/ops/landmarks.h"

#include <cmath>

#include <doctest/doctest.h>

#include "autograd/ops/activation.h"
#include "autograd/ops/linear.h"
#include "autograd/tape.h"
#include "bench.h"
#include "core/error.h"

using namespace fovea;
using namespace fovea::test;

namespace {

using Matrix = std::vector<double>;

Matrix product(const Matrix& a, const Matrix& b, std::size_t m) {
  Matrix out(m * m, 0.0);
  for (std::size_t i = 0; i < m; ++i) {
    for (std::size_t k = 0; k < m; ++k) {
      for (std::size_t j = 0; j < m; ++j)
        out[i * m + j] += a[i * m + k] * b[k * m + j];
    }
  }
  return out;
}

double norm_of(const Matrix& a, std::size_t m) {
  double column = 0, row = 0;
  for (std::size_t i = 0; i < m; ++i) {
    double c = 0, r = 0;
    for (std::size_t j = 0; j < m; ++j) {
      c += std::fabs(a[j * m + i]);
      r += std::fabs(a[i * m + j]);
    }
    column = std::max(column, c);
    row = std::max(row, r);
  }
  return column * row;
}

// The iteration as it is written, with a given norm.
Matrix iterated(const Matrix& a, std::size_t m, int steps, double norm) {
  Matrix z(m * m);
  for (std::size_t i = 0; i < m; ++i) {
    for (std::size_t j = 0; j < m; ++j)
      z[i * m + j] = a[j * m + i] / norm;
  }
  const auto minus = [m](double alpha, Matrix x) {
    for (std::size_t i = 0; i < m * m; ++i)
      x[i] = (i / m == i % m ? alpha : 0) - x[i];
    return x;
  };
  for (int s = 0; s < steps; ++s) {
    const Matrix p = product(a, z, m);
    const Matrix t = minus(13, product(p, minus(15, product(p, minus(7, p), m)), m));
    z = product(z, t, m);
    for (double& value : z)
      value /= 4;
  }
  return z;
}

Tensor drawn64(const std::string& name, Shape shape, double size = 1) {
  const NamedStream stream(5, name);
  std::vector<double> values(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = size * stream.normal(i);
  return Tensor::from(values, shape, DType::f64);
}

}  // namespace

TEST_CASE("six steps give the iteration's value, and its gradient under a constant norm") {
  Bench bench;
  constexpr std::size_t kM = 5;
  Tape tape;
  bench.ctx.tape = &tape;
  const Var a = leaf(softmax(bench.ctx, Var(drawn64("a", {1, 5, 5}))).value());
  const Tensor seed = drawn64("seed", {1, 5, 5});
  const Var z = pseudo_inverse(bench.ctx, a, 6);
  Matrix base = a.value().values();
  const double norm = norm_of(base, kM);
  const Matrix expected = iterated(base, kM, 6, norm);
  for (std::size_t i = 0; i < kM * kM; ++i)
    CHECK(z.value().values()[i] == doctest::Approx(expected[i]).epsilon(1e-12));
  tape.backward(bench.ctx, z, seed);
  const Matrix weights = seed.values(), found = a.grad()->value.values();
  for (std::size_t e = 0; e < kM * kM; ++e) {
    const auto loss = [&](double step) {
      Matrix moved = base;
      moved[e] += step;
      const Matrix value = iterated(moved, kM, 6, norm);
      double sum = 0;
      for (std::size_t i = 0; i < value.size(); ++i)
        sum += value[i] * weights[i];
      return sum;
    };
    CHECK(found[e] == doctest::Approx((loss(1e-5) - loss(-1e-5)) / 2e-5).epsilon(1e-6));
  }
}

TEST_CASE("twenty steps satisfy A Z A = A for random softmax matrices") {
  Bench bench;
  const Var a(softmax(bench.ctx, Var(drawn64("wide", {20, 8, 8}))).value());
  const Var z = pseudo_inverse(bench.ctx, a, 20);
  const Var again = bmm(bench.ctx, bmm(bench.ctx, a, z), a);
  const Matrix x = a.value().values(), y = again.value().values();
  double error = 0;
  for (std::size_t i = 0; i < x.size(); ++i)
    error = std::max(error, std::fabs(x[i] - y[i]));
  CHECK(error < 1e-4);
}

TEST_CASE("segments are cut over the valid tokens, the longer ones last") {
  Bench bench;
  // 11 valid tokens of 14 in 4 segments: 2, 3, 3, 3.
  const std::vector<double> valid = {0, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 0,
                                     1, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  const LandmarkCut cut =
      LandmarkCut::of(bench.ctx, Tensor::from(valid, {2, 14}, DType::u8), 2, 14, 4);
  CHECK(cut.begin.values() == std::vector<double>{0, 3, 7, 10, 14, 0, 1, 3, 4, 14});
  CHECK(cut.size.values() == std::vector<double>{2, 3, 3, 3, 1, 1, 1, 0});
  CHECK(cut.present.values() == std::vector<double>{1, 1, 1, 1, 1, 1, 1, 0});
  CHECK(cut.single.values() == std::vector<double>{0, 1});
  const LandmarkCut whole = LandmarkCut::of(bench.ctx, {}, 1, 12, 4);
  CHECK(whole.begin.values() == std::vector<double>{0, 3, 6, 9, 12});
  CHECK_THROWS_AS(pseudo_inverse(bench.ctx, Var(drawn64("a", {2, 3})), 6), ShapeError);
}
