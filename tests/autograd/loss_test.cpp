#include "autograd/ops/loss.h"

#include <cmath>

#include <doctest/doctest.h>

#include "autograd/ops/elementwise.h"
#include "autograd/ops/linear.h"
#include "bench.h"
#include "core/error.h"

using namespace fovea;
using namespace fovea::test;

namespace {

Tensor seed_of(double value, DType dtype = DType::f32) {
  return Tensor::from(std::vector<double>{value}, {}, dtype);
}

}  // namespace

TEST_CASE("cross_entropy of equal logits is the log of their number") {
  Bench bench;
  const CrossEntropy loss = cross_entropy(
      bench.ctx, Var(bench.tensor({2, 2, 2, 2, 5, 5, 5, 5}, {2, 4})), bench.ids({3, 0}, {2}));
  CHECK(loss.sum.value().item() == doctest::Approx(2 * std::log(4.0)).epsilon(1e-6));
  CHECK(loss.per_row.values()[0] == doctest::Approx(std::log(4.0)).epsilon(1e-6));
  CHECK(loss.sum.shape() == Shape{});
}

TEST_CASE("correct names the first largest logit") {
  Bench bench;
  const Tensor logits = bench.tensor({1, 3, 3, 0, 1, 3, 3, 0, 9, 8, 7, 6}, {3, 4});
  const CrossEntropy loss = cross_entropy(bench.ctx, Var(logits), bench.ids({1, 2, 0}, {3}));
  CHECK(loss.correct.dtype() == DType::u8);
  CHECK(loss.correct.values() == std::vector<double>{1, 0, 1});
}

TEST_CASE("ignored rows have no loss, no gradient and are not correct") {
  Bench bench;
  for (const bool fused : {false, true}) {
    Tape tape;
    bench.ctx.tape = &tape;
    const Var x = leaf(bench.drawn("x", {4, 3})), w = parameter(bench.drawn("w", {5, 3}));
    const Tensor targets = bench.ids({-1, 2, -1, 0}, {4});
    bench.ctx.fuse = fused;
    const CrossEntropy loss = linear_cross_entropy(bench.ctx, x, w, targets);
    for (const std::size_t row : {0, 2}) {
      CHECK(loss.per_row.values()[row] == 0);
      if (!fused) CHECK(loss.correct.values()[row] == 0);
    }
    CHECK(loss.correct.defined() == !fused);  // a fused training step spares it
    bench.ctx.tape = nullptr;
    const CrossEntropy seen = linear_cross_entropy(bench.ctx, x, w, targets);
    for (const std::size_t row : {0, 2})
      CHECK(seen.correct.values()[row] == 0);
    bench.ctx.tape = &tape;
    tape.backward(bench.ctx, loss.sum, seed_of(1));
    for (const std::size_t i : {0, 1, 2, 6, 7, 8})
      CHECK(gradient(x)[i] == 0);
    CHECK(gradient(x)[3] != 0);
  }
}

TEST_CASE("a batch without any counted row has loss 0 and zero gradients") {
  Bench bench;
  Tape tape;
  bench.ctx.tape = &tape;
  const Var x = leaf(bench.drawn("x", {2, 3})), w = parameter(bench.drawn("w", {5, 3}));
  const CrossEntropy loss = linear_cross_entropy(bench.ctx, x, w, bench.ids({-1, -1}, {2}));
  CHECK(loss.sum.value().item() == 0);
  tape.backward(bench.ctx, loss.sum, seed_of(1));
  CHECK(gradient(x) == std::vector<double>(6));
  CHECK(gradient(w) == std::vector<double>(15));
}

TEST_CASE("the gradient is the seed times softmax minus one-hot") {
  Bench bench;
  Tape tape;
  bench.ctx.tape = &tape;
  const Var x = leaf(bench.tensor({std::log(1.0), std::log(2.0), std::log(5.0)}, {1, 3}));
  const CrossEntropy loss = cross_entropy(bench.ctx, x, bench.ids({1}, {1}));
  tape.backward(bench.ctx, loss.sum, seed_of(8));
  const double expected[] = {1, 2 - 8, 5};
  for (std::size_t i = 0; i < 3; ++i)
    CHECK(gradient(x)[i] == doctest::Approx(expected[i]).epsilon(1e-5));
}

TEST_CASE("chunks change no row's loss, and ignored rows none of the others") {
  Bench bench;
  const Var x(bench.drawn("x", {300, 16})), w(bench.drawn("w", {50, 16}));
  std::vector<double> ids(300);
  for (std::size_t i = 0; i < 300; ++i)
    ids[i] = static_cast<double>(i * 7 % 50);
  const Tensor targets = bench.ids(ids, {300});
  const CrossEntropy whole = linear_cross_entropy(bench.ctx, x, w, targets);
  const CrossEntropy chunks = linear_cross_entropy(bench.ctx, x, w, targets, {.chunk_rows = 128});
  CHECK(chunks.per_row.values() == whole.per_row.values());
  CHECK(chunks.sum.value().item() == whole.sum.value().item());
  CHECK(chunks.correct.values() == whole.correct.values());
  const CrossEntropy held = cross_entropy(bench.ctx, linear(bench.ctx, x, w, {}), targets);
  CHECK(held.per_row.values() == whole.per_row.values());
  CHECK(held.sum.value().item() == whole.sum.value().item());
}

TEST_CASE("rows that a head is padded with change no loss and no gradient") {
  Bench bench;
  const Tensor room = bench.drawn("w", {64, 16}), values = bench.drawn("x", {30, 16});
  const Tensor padding = room.slice(0, 50, 64);
  std::fill_n(padding.data<float>(), padding.numel(), 0.0F);
  std::vector<double> ids(30);
  for (std::size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<double>(i * 7 % 51) - 1;
  std::vector<std::vector<double>> first;
  for (const std::int64_t padded : {0, 64}) {
    Tape tape;
    bench.ctx.tape = &tape;
    const Var x = leaf(values), w = parameter(room.slice(0, 0, 50));
    const CrossEntropy loss = linear_cross_entropy(bench.ctx, x, w, bench.ids(ids, {30}),
                                                   {.chunk_rows = 8, .padded_rows = padded});
    tape.backward(bench.ctx, loss.sum, seed_of(1));
    const std::vector<std::vector<double>> now{loss.per_row.values(), gradient(w)};
    if (first.empty()) first = now;
    for (std::size_t i = 0; i < now.size(); ++i) {
      REQUIRE(now[i].size() == first[i].size());
      for (std::size_t j = 0; j < now[i].size(); ++j)
        CHECK(now[i][j] == doctest::Approx(first[i][j]).epsilon(1e-5));
    }
    CHECK(gradient(x).size() == 30 * 16);
  }
}

TEST_CASE("linear_cross_entropy has the same bits on 1, 2 and 3 threads") {
  std::vector<std::vector<double>> first;
  for (const int threads : {1, 2, 3}) {
    Bench bench(threads);
    Tape tape;
    bench.ctx.tape = &tape;
    const Var x = leaf(bench.drawn("x", {500, 16})), w = parameter(bench.drawn("w", {200, 16}));
    std::vector<double> ids(500);
    for (std::size_t i = 0; i < 500; ++i)
      ids[i] = static_cast<double>(i * 37 % 201) - 1;
    const CrossEntropy loss =
        linear_cross_entropy(bench.ctx, x, w, bench.ids(ids, {500}), {.chunk_rows = 192});
    tape.backward(bench.ctx, loss.sum, seed_of(0.002));
    const std::vector<std::vector<double>> now{loss.sum.value().values(), loss.per_row.values(),
                                               gradient(x), gradient(w)};
    if (first.empty()) first = now;
    CHECK(now == first);
  }
}

TEST_CASE("the logits of one chunk are the largest memory that linear_cross_entropy takes") {
  Bench bench;
  Tape tape;
  bench.ctx.tape = &tape;
  const Var x = leaf(bench.drawn("x", {4096, 4})), w = leaf(bench.drawn("w", {1000, 4}));
  const CrossEntropy loss = linear_cross_entropy(
      bench.ctx, x, w, bench.ids(std::vector<double>(4096, 1), {4096}), {.chunk_rows = 256});
  const std::size_t chunk = 256 * 1000 * 4, gradients = 4096 * 4 * 4 + 1000 * 4 * 4,
                    rows = 4096 * 5;
  CHECK(bench.memory.stats().peak < chunk + gradients + rows + 8192);
  CHECK(bench.memory.stats().live < gradients + rows + 8192);
}

TEST_CASE("in evaluation nothing but the results is kept, and the results are those of training") {
  Bench bench;
  const Var x = leaf(bench.drawn("x", {64, 8})), w = parameter(bench.drawn("w", {20, 8}));
  const Tensor targets = bench.ids(std::vector<double>(64, 3), {64});
  const CrossEntropy evaluated = linear_cross_entropy(bench.ctx, x, w, targets);
  Tape tape;
  bench.ctx.tape = &tape;
  const CrossEntropy trained = linear_cross_entropy(bench.ctx, x, w, targets);
  CHECK(!evaluated.sum.requires_grad());
  CHECK(trained.sum.requires_grad());
  CHECK(evaluated.sum.value().item() == trained.sum.value().item());
  CHECK(evaluated.per_row.values() == trained.per_row.values());
}

TEST_CASE("16-bit losses and their statistics are f32") {
  Bench bench(1, Precision::fp16_mixed);
  const CrossEntropy loss =
      linear_cross_entropy(bench.ctx, Var(bench.drawn("x", {3, 8}, DType::f16)),
                           Var(bench.drawn("w", {5, 8}, DType::f16)), bench.ids({0, 1, 2}, {3}));
  CHECK(loss.sum.dtype() == DType::f32);
  CHECK(loss.per_row.dtype() == DType::f32);
}

TEST_CASE("logits that are not finite make the loss not finite") {
  Bench bench;
  for (const double bad : {std::nan(""), HUGE_VAL}) {
    const Tensor logits = bench.tensor({0, 1, bad, 0, 1, 2}, {2, 3});
    const CrossEntropy loss = cross_entropy(bench.ctx, Var(logits), bench.ids({0, 0}, {2}));
    CHECK(!std::isfinite(loss.per_row.values()[0]));
    CHECK(std::isfinite(loss.per_row.values()[1]));
    CHECK(!std::isfinite(loss.sum.value().item()));
  }
}

TEST_CASE("a target out of range is named with its row") {
  Bench bench;
  const Var x(bench.drawn("x", {2, 3})), w(bench.drawn("w", {5, 3}));
  CHECK_THROWS_WITH_AS(
      linear_cross_entropy(bench.ctx, x, w, bench.ids({4, 5}, {2})),
      "linear_cross_entropy: the target of row 1 is 5, but must be -1 (ignored) or in [0, 5)",
      IoError);
  CHECK_THROWS_WITH_AS(
      cross_entropy(bench.ctx, x, bench.ids({-2, 0}, {2})),
      "cross_entropy: the target of row 0 is -2, but must be -1 (ignored) or in [0, 3)", IoError);
}

TEST_CASE("targets and heads that do not fit are refused") {
  Bench bench;
  const Var x(bench.drawn("x", {2, 3})), w(bench.drawn("w", {5, 3}));
  CHECK_THROWS_AS(linear_cross_entropy(bench.ctx, x, w, bench.ids({1}, {1})), ShapeError);
  CHECK_THROWS_AS(
      linear_cross_entropy(bench.ctx, x, Var(bench.drawn("v", {5, 4})), bench.ids({1, 1}, {2})),
      ShapeError);
  CHECK_THROWS_AS(linear_cross_entropy(bench.ctx, x, w, bench.ids({1, 1}, {2}), {.chunk_rows = -1}),
                  ShapeError);
  CHECK_THROWS_AS(cross_entropy(bench.ctx, x, bench.tensor({1, 1}, {2})), ShapeError);
  CHECK_THROWS_AS(cross_entropy(bench.ctx, x, Tensor{}), ShapeError);
}
