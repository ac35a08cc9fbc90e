#include "autograd/ops/embedding.h"

#include <cmath>

#include <doctest/doctest.h>

#include "autograd/ops/elementwise.h"
#include "bench.h"
#include "core/error.h"

using namespace fovea;
using namespace fovea::test;

namespace {

std::vector<double> rotated(Bench& bench, const std::vector<double>& x, const Rope& how,
                            double position) {
  const Tensor in = bench.tensor(x, {1, 1, 1, static_cast<std::int64_t>(x.size())}, DType::f64);
  return rope(bench.ctx, Var(in), how, bench.ids({position}, {1, 1})).value().values();
}

void check_near(const std::vector<double>& found, const std::vector<double>& expected,
                double bound) {
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    CHECK(std::fabs(found[i] - expected[i]) <= bound);
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double out = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    out += a[i] * b[i];
  return out;
}

}  // namespace

TEST_CASE("an embedding is its table row plus its position's row") {
  Bench bench;
  const Tensor ids = bench.ids({2, 0, 1, 1}, {2, 2});
  const Var table(bench.tensor({1, 2, 3, 4, 5, 6}, {3, 2})),
      places(bench.tensor({10, 20, 30, 40}, {2, 2}));
  CHECK(embedding(bench.ctx, ids, table, {}, {}).value().values() ==
        std::vector<double>{5, 6, 1, 2, 3, 4, 3, 4});
  CHECK(embedding(bench.ctx, ids, table, places, {}).value().values() ==
        std::vector<double>{15, 26, 31, 42, 13, 24, 33, 44});
  CHECK(
      embedding(bench.ctx, ids, table, places, bench.ids({1, 0, 0, 0}, {2, 2})).value().values() ==
      std::vector<double>{35, 46, 11, 22, 13, 24, 13, 24});
}

TEST_CASE("an embedding's gradient is summed in row order, on any number of threads") {
  const auto run = [](int threads) {
    Bench bench(threads);
    Tape tape;
    bench.ctx.tape = &tape;
    const Var table = parameter(bench.drawn("table", {3, 150}));
    const Tensor ids = bench.ids({1, 0, 1, 1, 0, 1}, {2, 3});
    const Tensor dy = bench.drawn("dy", {2, 3, 150});
    tape.backward(bench.ctx, embedding(bench.ctx, ids, table, {}, {}), dy);
    std::vector<double> expected(3 * 150);
    const std::vector<double> rows = dy.values(), which = ids.values();
    for (std::size_t r = 0; r < 6; ++r) {
      for (std::size_t c = 0; c < 150; ++c) {
        double& to = expected[static_cast<std::size_t>(which[r]) * 150 + c];
        to = static_cast<double>(static_cast<float>(to) + static_cast<float>(rows[r * 150 + c]));
      }
    }
    CHECK(gradient(table) == expected);
    return gradient(table);
  };
  CHECK(run(1) == run(3));
}

TEST_CASE("an id out of range is an IoError that names its place") {
  Bench bench;
  const Var table(bench.drawn("table", {5, 2}));
  CHECK_THROWS_WITH_AS(embedding(bench.ctx, bench.ids({0, 1, 2, 5}, {2, 2}), table, {}, {}),
                       "embedding: ids[1,1] is 5, but the table has 5 rows", IoError);
  CHECK_THROWS_WITH_AS(embedding(bench.ctx, bench.ids({0, -1}, {1, 2}), table, {}, {}),
                       "embedding: ids[0,1] is -1, but the table has 5 rows", IoError);
  CHECK_THROWS_AS(
      embedding(bench.ctx, bench.ids({0, 1}, {1, 2}), table, table, bench.ids({0, 5}, {1, 2})),
      IoError);
  CHECK_THROWS_WITH_AS(
      embedding(bench.ctx, bench.ids({0, 0, 0, 0, 0, 0}, {1, 6}), table, table, {}),
      "embedding: 6 tokens, but the position table has 5 rows", ShapeError);
}

TEST_CASE("sinusoidal positions have the values of the specification") {
  const Tensor table = sinusoidal_table(3, 4, DType::f64);
  check_near(table.slice(0, 0, 1).values(), {0, 1, 0, 1}, 0);
  check_near(table.slice(0, 1, 2).values(), {0.841471, 0.540302, 0.0099998, 0.99995}, 5e-7);
  const std::vector<double> rounded = sinusoidal_table(3, 4, DType::f32).values();
  check_near(rounded, table.values(), 6e-8);
}

TEST_CASE("rope has the values of the specification, in both pair layouts") {
  Bench bench;
  check_near(rotated(bench, {1, 0, 1, 0}, {.interleaved = true}, 1),
             {0.540302, 0.841471, 0.99995, 0.0099998}, 5e-7);
  check_near(rotated(bench, {1, 1, 0, 0}, {}, 1), {0.540302, 0.99995, 0.841471, 0.0099998}, 5e-7);
}

TEST_CASE("rope keeps norms, and products depend on the distance alone") {
  Bench bench;
  const std::vector<double> q = bench.drawn("q", {8}, DType::f64).values(),
                            k = bench.drawn("k", {8}, DType::f64).values();
  for (const bool interleaved : {false, true}) {
    const Rope how{.base = 100, .interleaved = interleaved};
    const auto far = rotated(bench, q, how, 1000);
    CHECK(dot(far, far) == doctest::Approx(dot(q, q)).epsilon(1e-12));
    CHECK(dot(far, rotated(bench, k, how, 993)) ==
          doctest::Approx(dot(rotated(bench, q, how, 7), k)).epsilon(1e-10));
  }
}

TEST_CASE("rope counts positions from `first`, and leaves features past its width alone") {
  Bench bench;
  const Tensor x = bench.drawn("x", {2, 3, 4, 10});
  const Rope how{.width = 6};
  const Var all = rope(bench.ctx, Var(x), how, {});
  const Var later = rope(bench.ctx, Var(x.slice(2, 2, 4)), how, {}, 2);
  CHECK(later.value().values() == all.value().slice(2, 2, 4).values());
  CHECK(all.value().slice(3, 6, 10).values() == x.slice(3, 6, 10).values());
  CHECK(all.value().slice(2, 0, 1).values() == x.slice(2, 0, 1).values());  // position 0
}

TEST_CASE("rope gives the same bits from a strided view and from a copy of it") {
  Bench bench;
  const Tensor x = bench.drawn("x", {2, 5, 24});
  const Var view = split_heads(bench.ctx, Var(x), {{2, 8}, {1, 8}})[0];
  const Var copied(Tensor::from(view.value().values(), view.shape(), DType::f32));
  CHECK(rope(bench.ctx, view, {}, {}).value().values() ==
        rope(bench.ctx, copied, {}, {}).value().values());
}

TEST_CASE("rope refuses odd or too wide rotations") {
  Bench bench;
  const Var x(bench.drawn("x", {1, 1, 2, 5}));
  CHECK_THROWS_WITH_AS(rope(bench.ctx, x, {}, {}),
                       "rope: the rotary width is 5, but must be even and at most 5", ShapeError);
  CHECK_THROWS_AS(rope(bench.ctx, x, {.width = 6}, {}), ShapeError);
  CHECK_THROWS_AS(rope(bench.ctx, x, {.width = 4}, bench.ids({0}, {1, 1})), ShapeError);
}
