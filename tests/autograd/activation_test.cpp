#include "autograd/ops/activation.h"

#include <cmath>

#include <doctest/doctest.h>

#include "bench.h"
#include "core/error.h"

using namespace fovea;
using namespace fovea::test;

TEST_CASE("gelu and swiglu have their published values") {
  Bench bench;
  const auto g =
      gelu(bench.ctx, Var(bench.tensor({-3, -1, 0, 0.5, 2}, {5}, DType::f64))).value().values();
  const double expected[] = {-0.0036373920817729943, -0.15880800939172324, 0, 0.34571400982514394,
                             1.9545976940877752};
  for (std::size_t i = 0; i < 5; ++i)
    CHECK(g[i] == doctest::Approx(expected[i]).epsilon(1e-12));
  const auto s =
      swiglu(bench.ctx, Var(bench.tensor({1, -2, 3, 10}, {1, 4}, DType::f64))).value().values();
  CHECK(s[0] == doctest::Approx(3 / (1 + std::exp(-1.0))).epsilon(1e-12));
  CHECK(s[1] == doctest::Approx(-20 / (1 + std::exp(2.0))).epsilon(1e-12));
}

TEST_CASE("dropout is the identity in evaluation and at p = 0, and records nothing") {
  Bench bench;
  Tape tape;
  bench.ctx.tape = &tape;
  const Var x = leaf(bench.drawn("x", {3, 5}));
  const Var none = dropout(bench.ctx, x, 0, bench.ctx.key("d"));
  bench.ctx.training = false;
  const Var evaluated = dropout(bench.ctx, x, 0.5, bench.ctx.key("d"));
  for (const Var& y : {none, evaluated}) {
    CHECK(y.value().view().data == x.value().view().data);
    CHECK(y.grad() == x.grad());
  }
  CHECK(tape.size() == 0);
}

TEST_CASE("dropout's gradient has the mask and the scale of its values") {
  Bench bench;
  Tape tape;
  bench.ctx.tape = &tape;
  const Var x = leaf(bench.tensor(std::vector<double>(60, 1.0), {4, 15}));
  const Var y = dropout(bench.ctx, x, 0.5, bench.ctx.key("d"));
  const std::vector<double> kept = y.value().values();
  tape.backward(bench.ctx, y, ones(y));
  CHECK(gradient(x) == kept);
  CHECK(*std::max_element(kept.begin(), kept.end()) == 2.0);
  CHECK(*std::min_element(kept.begin(), kept.end()) == 0.0);
}

TEST_CASE("activations refuse what they cannot read") {
  Bench bench;
  const Var x(bench.drawn("x", {2, 5}));
  CHECK_THROWS_AS(swiglu(bench.ctx, x), ShapeError);
  CHECK_THROWS_WITH_AS(dropout(bench.ctx, x, 1.0, bench.ctx.key("d")),
                       "dropout: p is 1, but must be in [0, 1)", ConfigError);
  CHECK_THROWS_AS(gelu(bench.ctx, Var(bench.ids({1}, {1}))), ShapeError);
  CHECK_THROWS_WITH_AS(softmax(bench.ctx, Var()), "softmax: x is undefined, but must be a float",
                       ShapeError);
}
