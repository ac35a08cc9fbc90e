#include "autograd/ops/norm.h"

#include <cmath>

#include <doctest/doctest.h>

#include "bench.h"
#include "core/error.h"

using namespace fovea;
using namespace fovea::test;

TEST_CASE("layer norm of a small row is what one computes by hand") {
  Bench bench;
  const Var x(bench.tensor({1, 2, 3, 6}, {1, 4}));
  const Var gamma(bench.tensor({1, 1, 2, 2}, {4})), beta(bench.tensor({0, 1, 0, 1}, {4}));
  const auto y =
      layer_norm(bench.ctx, x, gamma, beta, 0.5).value().values();  // mean 3, variance 3.5
  const double expected[] = {-1, 0.5, 0, 4};
  for (std::size_t i = 0; i < 4; ++i)
    CHECK(y[i] == doctest::Approx(expected[i]).epsilon(1e-6));
}

TEST_CASE("rms norm of a small row is what one computes by hand") {
  Bench bench;
  const Var x(bench.tensor({3, 4}, {1, 2})), gamma(bench.tensor({1, 2}, {2}));
  const auto y = rms_norm(bench.ctx, x, gamma, 3.5).value().values();  // mean square 12.5
  CHECK(y[0] == doctest::Approx(0.75).epsilon(1e-6));
  CHECK(y[1] == doctest::Approx(2).epsilon(1e-6));
}

TEST_CASE("a large common offset does not spoil layer norm in f32") {
  Bench bench;
  const Tensor small = bench.tensor({1, 2, 3, 6, 1, 5, 2, 4}, {1, 8});
  std::vector<double> moved = small.values();
  for (double& v : moved)
    v += 4096;
  const Var gamma(bench.tensor(std::vector<double>(8, 1.0), {8}));
  const auto a = layer_norm(bench.ctx, Var(small), gamma, {}, 1e-5).value().values();
  const auto b =
      layer_norm(bench.ctx, Var(bench.tensor(moved, {1, 8})), gamma, {}, 1e-5).value().values();
  for (std::size_t i = 0; i < 8; ++i)
    CHECK(b[i] == doctest::Approx(a[i]).epsilon(1e-5));
}

TEST_CASE("a residual norm gives both of its inputs the same gradient, fused or not") {
  for (const bool fuse : {true, false}) {
    Bench bench;
    Tape tape;
    bench.ctx.tape = &tape;
    bench.ctx.fuse = fuse;
    const Var x = leaf(bench.drawn("x", {3, 5})), branch = leaf(bench.drawn("b", {3, 5}));
    const Var gamma = parameter(bench.drawn("g", {5}));
    const ResidualNorm out = residual_rms_norm(bench.ctx, x, branch, gamma, 1e-5);
    const Var outputs[] = {out.sum, out.norm};
    const Tensor seeds[] = {ones(out.sum), ones(out.norm)};
    tape.backward(bench.ctx, outputs, seeds);
    CHECK(gradient(x) == gradient(branch));
    CHECK(gradient(x)[0] != 1.0);
  }
}

TEST_CASE("norms have the same bits on one and on three threads, forward and backward") {
  const auto run = [](int threads) {
    Bench bench(threads);
    Tape tape;
    bench.ctx.tape = &tape;
    const Var x = leaf(bench.drawn("x", {3000, 37}));
    const Var gamma = parameter(bench.drawn("gamma", {37})),
              beta = parameter(bench.drawn("beta", {37}));
    const Var y = layer_norm(bench.ctx, x, gamma, beta, 1e-5);
    tape.backward(bench.ctx, y, bench.drawn("dy", {3000, 37}));
    return std::vector{y.value().values(), gradient(x), gradient(gamma), gradient(beta)};
  };
  CHECK(run(1) == run(3));
}

TEST_CASE("a row's norm does not depend on the rows beside it") {
  Bench bench;
  const Tensor x = bench.drawn("x", {70, 33});
  const Var gamma(bench.drawn("gamma", {33}));
  const auto all = layer_norm(bench.ctx, Var(x), gamma, {}, 1e-5);
  const auto one = layer_norm(bench.ctx, Var(x.slice(0, 41, 42)), gamma, {}, 1e-5);
  CHECK(one.value().values() == all.value().slice(0, 41, 42).values());
}

TEST_CASE("norms refuse parameters that do not fit, naming them") {
  Bench bench;
  const Var x(bench.drawn("x", {2, 4})), wide(bench.drawn("w", {5})), good(bench.drawn("g", {4}));
  const Var half(bench.drawn("h", {4}, DType::bf16));
  CHECK_THROWS_WITH_AS(layer_norm(bench.ctx, x, wide, {}, 1e-5),
                       "layer_norm: gamma is f32 [5], but must be f32 [4]", ShapeError);
  CHECK_THROWS_WITH_AS(layer_norm(bench.ctx, x, good, half, 1e-5),
                       "layer_norm: beta is bf16 [4], but must be f32 [4]", ShapeError);
  CHECK_THROWS_WITH_AS(residual_rms_norm(bench.ctx, x, good, good, 1e-5),
                       "residual_rms_norm: branch is f32 [4], but must be f32 [2,4]", ShapeError);
  CHECK_THROWS_WITH_AS(rms_norm(bench.ctx, Var(bench.ids({1, 2}, {1, 2})), good, 1e-5),
                       "rms_norm: x is i32 [1,2], but must be a float", ShapeError);
}
