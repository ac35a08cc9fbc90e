#include "kernels/feature_map.h"

#include <cmath>
#include <limits>

#include <doctest/doctest.h>

#include "kernels/attention_problem.h"

using namespace fovea;
using namespace fovea::test;

namespace {

struct Mapped {
  Tensor y, exponent, shift;
};

Mapped mapped(const Tensor& x, const FeatureMap& map, int threads = 1) {
  Stream stream(kCpu, threads);
  const Shape rows{x.size(0), x.size(1), x.size(2)};
  const Mapped out{
      Tensor::empty({rows[0], rows[1], rows[2], feature_count(map, x.size(3))}, x.dtype(), kCpu),
      Tensor::empty(rows, acc_of(x.dtype()), kCpu), Tensor::empty(rows, acc_of(x.dtype()), kCpu)};
  cpu::features_forward(stream.ref(), out.y.view(), out.exponent.view(), out.shift.view(), x.view(),
                        map);
  return out;
}

// Features as they are meant, times 2^exponent.
std::vector<double> whole(const Mapped& m) {
  std::vector<double> y = m.y.values();
  const std::vector<double> exponent = m.exponent.values();
  const std::size_t width = y.size() / exponent.size();
  for (std::size_t i = 0; i < y.size(); ++i)
    y[i] *= std::exp2(exponent[i / width]);
  return y;
}

// One row of FAVOR+ features, by the formula.
double feature(const std::vector<double>& x, const std::vector<double>& w, std::size_t row,
               std::size_t r, double scale, double stabiliser, double eps) {
  const std::size_t d = 6;
  double product = 0, norm = 0;
  for (std::size_t c = 0; c < d; ++c) {
    product += w[r * d + c] * scale * x[row * d + c];
    norm += scale * scale * x[row * d + c] * x[row * d + c];
  }
  return std::exp(product - norm / 2 - stabiliser) + eps;
}

double largest_product(const std::vector<double>& x, const std::vector<double>& w, std::size_t row,
                       double scale) {
  double most = -std::numeric_limits<double>::infinity();
  for (std::size_t r = 0; r < w.size() / 6; ++r) {
    double product = 0;
    for (std::size_t c = 0; c < 6; ++c)
      product += w[r * 6 + c] * scale * x[row * 6 + c];
    most = std::max(most, product);
  }
  return most;
}

}  // namespace

TEST_CASE("softmax features are those of the formula under every stabiliser") {
  const Tensor x = random_tensor({2, 1, 5, 6}, "x", DType::f64), w = random_tensor({9, 6}, "w");
  const std::vector<double> xs = x.values(), ws = w.values();
  for (const Stabiliser stabiliser :
       {Stabiliser::none, Stabiliser::own, Stabiliser::shared, Stabiliser::constant}) {
    FeatureMap map{.kind = FeatureKind::softmax, .stabiliser = stabiliser, .scale = 0.7};
    map.eps = stabiliser == Stabiliser::none ? 0 : 1e-3;
    map.w = w.view();
    const std::vector<double> found = whole(mapped(x, map));
    for (std::size_t row = 0; row < 10; ++row) {
      double s = 0;
      if (stabiliser == Stabiliser::own) s = largest_product(xs, ws, row, 0.7);
      if (stabiliser == Stabiliser::shared) {
        s = -1e9;
        for (std::size_t other = row / 5 * 5; other < row / 5 * 5 + 5; ++other)
          s = std::max(s, largest_product(xs, ws, other, 0.7));
      }
      for (std::size_t r = 0; r < 9; ++r)
        CHECK(found[row * 9 + r] ==
              doctest::Approx(feature(xs, ws, row, r, 0.7, s, map.eps)).epsilon(1e-12));
    }
  }
}

TEST_CASE("the largest stored softmax feature of a row lies in (1/2, 1], however large the row") {
  for (const DType dtype : {DType::f64, DType::f32, DType::f16}) {
    for (const double size : {0.01, 1.0, 30.0}) {
      const Tensor x = random_tensor({1, 2, 70, 6}, "x", dtype, size),
                   w = random_tensor({20, 6}, "w");
      FeatureMap map{.kind = FeatureKind::softmax_pair, .scale = 0.6};
      map.w = w.view();
      const Mapped m = mapped(x, map);
      const std::vector<double> y = m.y.values();
      for (std::size_t row = 0; row < 140; ++row) {
        double most = 0;
        for (std::size_t r = 0; r < 40; ++r) {
          CHECK(y[row * 40 + r] >= 0);
          most = std::max(most, y[row * 40 + r]);
        }
        CHECK(most > 0.4999);
        CHECK(most < 1.0005);
      }
      for (const double e : m.exponent.values())
        CHECK(e == std::floor(e));
    }
  }
}

TEST_CASE("a shared stabiliser is that of the row's own segment, and padding has no part in it") {
  const Tensor w = random_tensor({9, 6}, "w");
  FeatureMap map{.kind = FeatureKind::softmax, .stabiliser = Stabiliser::shared, .eps = 1e-3};
  map.w = w.view();
  const Tensor x = random_tensor({1, 2, 12, 6}, "x"), alone = x.slice(2, 3, 8);
  const Tensor valid =
      Tensor::from(std::vector<double>{1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 1, 1}, {1, 12}, DType::u8);
  const Tensor segments =
      Tensor::from(std::vector<double>{0, 0, 0, 4, 4, 4, 4, 4, 9, 0, 5, 5}, {1, 12}, DType::i32);
  const Mapped own = mapped(alone, map);
  map.valid = valid.view();
  map.segments = segments.view();
  const Mapped packed = mapped(x, map);
  CHECK(same_bits(packed.y.slice(2, 3, 8), own.y));
  CHECK(same_bits(packed.shift.slice(2, 3, 8), own.shift));
  for (const double value : packed.y.slice(2, 8, 10).values())
    CHECK(value == 0);
}

TEST_CASE("exponents beyond 60 are clamped under a constant stabiliser and send no gradient") {
  const Tensor w = Tensor::from(std::vector<double>{10, 0, 0, 10}, {2, 2}, DType::f32);
  const Tensor x = Tensor::from(std::vector<double>{9, 1}, {1, 1, 1, 2}, DType::f64);
  FeatureMap map{.kind = FeatureKind::softmax, .stabiliser = Stabiliser::constant};
  map.w = w.view();
  const Mapped m = mapped(x, map);
  // <w, x> - |x|^2 / 2 is 90 - 41 and 10 - 41, then 90 - 20.5 > 60 for x scaled up.
  CHECK(whole(m)[0] == doctest::Approx(std::exp(49.0)));
  CHECK(whole(m)[1] == doctest::Approx(std::exp(-31.0)));
  const Tensor near = Tensor::from(std::vector<double>{10, 1}, {1, 1, 1, 2}, DType::f64);
  const Tensor far_w = Tensor::from(std::vector<double>{20, 0, 0, 10}, {2, 2}, DType::f32);
  map.w = far_w.view();
  const Mapped clamped = mapped(near, map);  // 200 - 50.5
  CHECK(whole(clamped)[0] == doctest::Approx(std::exp(60.0)));
  const Tensor dy = Tensor::from(std::vector<double>{1, 0}, {1, 1, 1, 2}, DType::f64);
  const Tensor dx = Tensor::empty({1, 1, 1, 2}, DType::f64, kCpu);
  Stream stream(kCpu);
  cpu::features_backward(stream.ref(), dx.view(), View{}, dy.view(), near.view(),
                         clamped.shift.view(), map);
  CHECK(dx.values() == std::vector<double>{0, 0});
}

TEST_CASE("elu features are positive, and one below zero is e^x") {
  const Tensor x = Tensor::from(std::vector<double>{-30, -1, 0, 2}, {1, 1, 1, 4}, DType::f32);
  const std::vector<double> y = mapped(x, {.kind = FeatureKind::elu}).y.values();
  CHECK(y[0] > 0);
  CHECK(y[1] == doctest::Approx(std::exp(-1.0)).epsilon(1e-6));
  CHECK(y[2] == 1);
  CHECK(y[3] == 3);
}

TEST_CASE("products of cosine features are weighed by the cosine of the distance") {
  const Tensor x = random_tensor({1, 1, 30, 6}, "x");
  const FeatureMap map{.kind = FeatureKind::cosine, .reference = 30};
  const std::vector<double> y = mapped(x, map).y.values(), xs = x.values();
  double least = 1;
  for (std::size_t i = 0; i < 30; ++i) {
    for (std::size_t j = 0; j < 30; ++j) {
      double found = 0, plain = 0;
      for (std::size_t c = 0; c < 12; ++c)
        found += y[i * 12 + c] * y[j * 12 + c];
      for (std::size_t c = 0; c < 6; ++c)
        plain += std::max(0.0, xs[i * 6 + c]) * std::max(0.0, xs[j * 6 + c]);
      const double weight =
          std::cos(1.5707963267948966 * (static_cast<double>(i) - static_cast<double>(j)) / 30);
      least = std::min(least, weight);
      CHECK(found == doctest::Approx(plain * weight).epsilon(1e-4));
    }
  }
  CHECK(least >= 0);
}

TEST_CASE("sines and cosines of the vector code are those of the library") {
  // One coordinate, sigma and direction chosen so that u is the coordinate times a factor.
  const Tensor x = Tensor::from(std::vector<double>{1, 0, -1, 0}, {1, 1, 2, 2}, DType::f32);
  std::vector<double> directions;
  for (int r = 0; r < 200; ++r) {
    directions.push_back(0.37 * (r - 60));
    directions.push_back(0);
  }
  const Tensor w = Tensor::from(directions, {200, 2}, DType::f32);
  const Tensor sigma = Tensor::from(std::vector<double>{1, 1}, {1, 2}, DType::f32);
  FeatureMap map{.kind = FeatureKind::fourier};
  map.w = w.view();
  map.sigma = sigma.view();
  const std::vector<double> y = mapped(x, map).y.values();
  for (std::size_t r = 0; r < 200; ++r) {
    const double u = directions[2 * r] / 1.001, bound = 1e-6 + 2e-7 * std::fabs(u);
    CHECK(std::fabs(y[r] - std::sin(u)) < bound);
    CHECK(std::fabs(y[200 + r] - std::cos(u)) < bound);
    CHECK(std::fabs(y[400 + r] + std::sin(u)) < bound);
  }
}

TEST_CASE("features have the same bits with any number of threads") {
  const Tensor x = random_tensor({2, 3, 150, 6}, "x"), w = random_tensor({33, 6}, "w");
  for (const Stabiliser stabiliser : {Stabiliser::none, Stabiliser::shared}) {
    FeatureMap map{.kind = FeatureKind::softmax, .stabiliser = stabiliser, .eps = 1e-3};
    map.w = w.view();
    CHECK(same_bits(mapped(x, map).y, mapped(x, map, 3).y));
  }
}
