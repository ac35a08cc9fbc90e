#include "autograd/ops/linear.h"

#include <doctest/doctest.h>

#include "autograd/ops/elementwise.h"
#include "bench.h"
#include "core/error.h"

using namespace fovea;
using namespace fovea::test;

TEST_CASE("linear is x w^T + b") {
  Bench bench;
  const Var x(bench.tensor({1, 2, 3, 4}, {2, 2})), w(bench.tensor({1, 0, 0, 1, 1, 1}, {3, 2}));
  CHECK(linear(bench.ctx, x, w, Var(bench.tensor({10, 20, 30}, {3}))).value().values() ==
        std::vector<double>{11, 22, 33, 13, 24, 37});
  CHECK(linear(bench.ctx, x, w, {}).value().values() == std::vector<double>{1, 2, 3, 3, 4, 7});
}

TEST_CASE("linear keeps the leading axes and x's dtype") {
  Bench bench(1, Precision::bf16_mixed);
  const Var y =
      linear(bench.ctx, Var(bench.drawn("x", {2, 3, 4}, DType::bf16)),
             Var(bench.drawn("w", {5, 4}, DType::bf16)), Var(bench.drawn("b", {5}, DType::bf16)));
  CHECK(y.shape() == Shape{2, 3, 5});
  CHECK(y.dtype() == DType::bf16);
}

TEST_CASE("a row of linear has the same bits alone and among many") {
  Bench bench;
  const Tensor x = bench.drawn("x", {300, 40}), w = bench.drawn("w", {33, 40}),
               b = bench.drawn("b", {33});
  const std::vector<double> all = linear(bench.ctx, Var(x), Var(w), Var(b)).value().values();
  for (const std::int64_t rows : {1, 7, 127, 128, 129, 256}) {
    const std::vector<double> some =
        linear(bench.ctx, Var(x.slice(0, 0, rows)), Var(w), Var(b)).value().values();
    CHECK(std::equal(some.begin(), some.end(), all.begin()));
  }
}

TEST_CASE("linear and its gradients have the same bits on 1, 2 and 3 threads") {
  std::vector<std::vector<double>> first;
  for (const int threads : {1, 2, 3}) {
    Bench bench(threads);
    Tape tape;
    bench.ctx.tape = &tape;
    const Var x = leaf(bench.drawn("x", {500, 32})), w = parameter(bench.drawn("w", {300, 32}));
    const Var b = parameter(bench.drawn("b", {300}));
    const Var y = linear_gelu(bench.ctx, x, w, b);
    tape.backward(bench.ctx, y, bench.drawn("dy", {500, 300}));
    const std::vector<std::vector<double>> now{y.value().values(), gradient(x), gradient(w),
                                               gradient(b)};
    if (first.empty()) first = now;
    CHECK(now == first);
  }
}

TEST_CASE("weight gradients of 16-bit products are summed in f32 in the parameter's buffer") {
  Bench bench(1, Precision::bf16_mixed);
  Tape tape;
  bench.ctx.tape = &tape;
  // 1 + 256 * 2^-10: bf16 would lose every one of the small terms.
  const Var w = parameter(bench.tensor({1}, {1, 1}, DType::bf16)),
            b = parameter(bench.tensor({1}, {1}, DType::bf16));
  std::vector<double> values(257, 0.0009765625);
  values[0] = 1;
  const Var y = linear(bench.ctx, Var(bench.tensor(values, {257, 1}, DType::bf16)), w, b);
  tape.backward(bench.ctx, y, bench.tensor(std::vector<double>(257, 1), {257, 1}, DType::bf16));
  CHECK(gradient(w)[0] == 1.25);
  CHECK(gradient(b)[0] == 257);
}

TEST_CASE("a weight that is itself computed gets its gradient in its own dtype") {
  Bench bench(1, Precision::bf16_mixed);
  Tape tape;
  bench.ctx.tape = &tape;
  const Var source = leaf(bench.drawn("w", {3, 4}, DType::bf16));
  const Var w = scale(bench.ctx, source, 2), x = leaf(bench.drawn("x", {2, 4}, DType::bf16));
  const Var y = add(bench.ctx, linear(bench.ctx, x, w, {}), linear(bench.ctx, x, w, {}));
  tape.backward(bench.ctx, y, ones(y, DType::bf16));
  CHECK(source.grad()->value.dtype() == DType::bf16);
  double expected = 0;  // 2 readers, scale 2, summed over rows
  for (int row = 0; row < 2; ++row)
    expected += 4 * x.value().values()[static_cast<std::size_t>(row) * 4];
  CHECK(gradient(source)[0] == doctest::Approx(expected).epsilon(0.02));
}

TEST_CASE("without fuse linear_gelu runs its composition") {
  Bench bench;
  Tape tape;
  bench.ctx.tape = &tape;
  bench.ctx.fuse = false;
  linear_gelu(bench.ctx, leaf(bench.drawn("x", {2, 4})), Var(bench.drawn("w", {3, 4})), {});
  CHECK(tape.dump() ==
        "0 linear 1 of 3 inputs wanted, 1 output\n1 gelu 1 of 1 inputs wanted, 1 output\n");
}

TEST_CASE("linear saves x for dw only") {
  Bench bench;
  Tape tape;
  bench.ctx.tape = &tape;
  Var x = leaf(bench.drawn("x", {4, 4}));
  const Var y = scale(bench.ctx, x, 1);
  const std::size_t before = bench.memory.stats().live;
  Var z = linear(bench.ctx, scale(bench.ctx, y, 1), Var(bench.drawn("w", {4, 4})), {});
  CHECK(bench.memory.stats().live == before + 512);  // z; the scaled y is gone
}

TEST_CASE("bmm reads strided factors and strided gradients") {
  Bench bench;
  // [B,N,H,D] seen as [B,H,N,D].
  const Tensor packed = bench.drawn("q", {2, 5, 3, 4});
  const Tensor view = packed.permute({0, 2, 1, 3});
  const Tensor dense = Tensor::from(view.values(), view.shape(), DType::f32);
  std::vector<std::vector<double>> first;
  for (const Tensor& a : {view, dense}) {
    Tape tape;
    bench.ctx.tape = &tape;
    const Var av = leaf(a), bv = leaf(bench.drawn("k", {2, 3, 6, 4}));
    const Var y = bmm(bench.ctx, av, bv, false, true);
    const Tensor d = bench.drawn("d", {2, 5, 3, 6}).permute({0, 2, 1, 3});
    tape.backward(bench.ctx, y, d);
    const std::vector<std::vector<double>> now{y.value().values(), gradient(av), gradient(bv)};
    if (first.empty()) first = now;
    CHECK(now == first);
  }
  // Columns that are not next to each other are copied first.
  const Var t = bmm(bench.ctx, Var(bench.tensor({1, 2, 3, 4}, {2, 2}).permute({1, 0})),
                    Var(bench.tensor({1, 0, 0, 1}, {2, 2})));
  CHECK(t.value().values() == std::vector<double>{1, 3, 2, 4});
}

TEST_CASE("shapes and dtypes that do not fit are refused with their values") {
  Bench bench;
  const Var x(bench.drawn("x", {2, 4})), w(bench.drawn("w", {3, 5}));
  CHECK_THROWS_WITH_AS(
      linear(bench.ctx, x, w, {}),
      "linear: x [2,4] f32, w [3,5] f32; needed are x [..., in], w [out, in], b [out] of one float "
      "dtype",
      ShapeError);
  const Var half(bench.drawn("h", {3, 4}, DType::f16));
  CHECK_THROWS_AS(linear(bench.ctx, x, half, {}), ShapeError);
  CHECK_THROWS_AS(
      linear_gelu(bench.ctx, x, Var(bench.drawn("v", {3, 4})), Var(bench.drawn("b", {4}))),
      ShapeError);
  CHECK_THROWS_WITH_AS(bmm(bench.ctx, Var(bench.drawn("a", {2, 4, 128, 64})),
                           Var(bench.drawn("b", {2, 4, 32, 128}))),
                       "bmm: inner sizes differ: a [2,4,128,64], b [2,4,32,128]", ShapeError);
  CHECK_THROWS_AS(
      bmm(bench.ctx, Var(bench.drawn("a", {2, 3, 3})), Var(bench.drawn("b", {3, 3, 3}))),
      ShapeError);
  CHECK_THROWS_AS(bmm(bench.ctx, Var(bench.drawn("a", {3})), Var(bench.drawn("b", {3}))),
                  ShapeError);
}

TEST_CASE(
    "meta counts the multiply-adds of forward and backward and takes the memory of a real run") {
  Bench real;
  Stream stream(kMeta);
  CachingAllocator memory{memory_source(kMeta)};
  Ctx ctx{.device = kMeta, .stream = stream, .activations = memory, .training = true};
  CachingAllocator plain{memory_source(kCpu)};
  Ctx cpu{.device = kCpu, .stream = real.stream, .activations = plain, .training = true};
  for (Ctx* c : {&ctx, &cpu}) {
    Tape tape;
    c->tape = &tape;
    const Var x = leaf(c->empty({32, 64}, DType::f32, "x"));
    Var w(c->empty({128, 64}, DType::f32, "w"), std::make_shared<Grad>());
    w.grad()->is_parameter = true;
    w.grad()->value = c->empty({128, 64}, DType::f32, "dw");
    const Var y = linear(*c, x, w, {});
    tape.backward(*c, y, c->empty({32, 128}, DType::f32, "dy"));
  }
  CHECK(stream.cost().flops == 3 * 2.0 * 32 * 64 * 128);
  CHECK(memory.stats().peak == plain.stats().peak);
}
