#include "autograd/ops/elementwise.h"

#include <doctest/doctest.h>

#include "bench.h"
#include "core/error.h"

using namespace fovea;
using namespace fovea::test;

TEST_CASE("split_heads returns views of the packed projection, head-major inside a part") {
  Bench bench;
  const Tensor x = bench.tensor({0, 1, 2, 3, 4, 5, 6, 10, 11, 12, 13, 14, 15, 16}, {1, 2, 7});
  const std::vector<Var> parts = split_heads(bench.ctx, Var(x), {{2, 2}, {1, 3}});
  CHECK(parts[0].shape() == Shape{1, 2, 2, 2});
  CHECK(parts[0].value().values() == std::vector<double>{0, 1, 10, 11, 2, 3, 12, 13});
  CHECK(parts[1].shape() == Shape{1, 1, 2, 3});
  CHECK(parts[1].value().values() == std::vector<double>{4, 5, 6, 14, 15, 16});
  CHECK(parts[0].view().data == x.view().data);
  CHECK(parts[1].view().ptr<float>() == x.data<float>() + 4);
}

TEST_CASE("merge_heads copies nothing where the heads already lie token by token") {
  Bench bench;
  const Tensor stored = bench.drawn("x", {2, 3, 4, 5});  // [B,N,H,D]
  const Var merged = merge_heads(bench.ctx, Var(stored.permute({0, 2, 1, 3})));
  CHECK(merged.view().data == stored.view().data);
  CHECK(merged.shape() == Shape{2, 3, 20});
  const Var copied = merge_heads(bench.ctx, Var(stored));  // read as [B,H,N,D]
  CHECK(copied.view().data != stored.view().data);
  CHECK(copied.value().values() == stored.permute({0, 2, 1, 3}).values());
}

TEST_CASE("merging what was split gives the projection back") {
  Bench bench;
  const Tensor x = bench.drawn("x", {2, 3, 12});
  const Var merged = merge_heads(bench.ctx, split_heads(bench.ctx, Var(x), {{3, 4}})[0]);
  CHECK(merged.view().data == x.view().data);
}

TEST_CASE("the gradient of a part that nobody reads is zero") {
  Bench bench;
  Tape tape;
  bench.ctx.tape = &tape;
  const Var x = leaf(bench.drawn("x", {1, 2, 6}));
  const Var used = split_heads(bench.ctx, x, {{1, 2}, {1, 2}, {1, 2}})[1];
  tape.backward(bench.ctx, used, ones(used));
  CHECK(gradient(x) == std::vector<double>{0, 0, 1, 1, 0, 0, 0, 0, 1, 1, 0, 0});
}

TEST_CASE("a product keeps a factor only for the other's gradient") {
  Bench bench;
  Tape tape;
  bench.ctx.tape = &tape;
  Var a(bench.ctx.empty({1000}, DType::f32), std::make_shared<Grad>());
  Var product;
  {
    const Var frozen(bench.ctx.empty({1000}, DType::f32));
    product = mul(bench.ctx, a, frozen);
  }
  const std::size_t before = bench.memory.stats().live;
  a = Var();  // nothing needs it any more: the frozen factor's gradient is not wanted
  CHECK(bench.memory.stats().live + 4000 <= before);
}

TEST_CASE("an addition keeps neither input") {
  Bench bench;
  Tape tape;
  bench.ctx.tape = &tape;
  Var a(bench.ctx.empty({1000}, DType::f32), std::make_shared<Grad>());
  const Var b(bench.ctx.empty({1000}, DType::f32), std::make_shared<Grad>());
  const Var total = add(bench.ctx, a, b);
  const std::size_t before = bench.memory.stats().live;
  a = Var();
  CHECK(bench.memory.stats().live + 4000 <= before);
}

TEST_CASE("cast to the dtype it has is the value itself") {
  Bench bench;
  const Var x(bench.drawn("x", {3}));
  CHECK(cast(bench.ctx, x, DType::f32).view().data == x.view().data);
  CHECK(cast(bench.ctx, x, DType::bf16).dtype() == DType::bf16);
}

TEST_CASE("changes of layout refuse what does not fit, with the values") {
  Bench bench;
  const Var x(bench.drawn("x", {2, 3, 4}));
  CHECK_THROWS_WITH_AS(permute(bench.ctx, x, {0, 1, 1}),
                       "permute: order (0,1,1) of [2,3,4] must name every axis once", ShapeError);
  CHECK_THROWS_AS(permute(bench.ctx, x, {0, 1}), ShapeError);
  CHECK_THROWS_AS(permute(bench.ctx, x, {0, 1, 3}), ShapeError);
  CHECK_THROWS_AS(reshape(bench.ctx, x, {5, 5}), ShapeError);
  CHECK_THROWS_WITH_AS(split_heads(bench.ctx, x, {{2, 3}}),
                       "split_heads: x is [2,3,4], but the parts need [B,N,6]", ShapeError);
  CHECK_THROWS_AS(merge_heads(bench.ctx, x), ShapeError);
  CHECK_THROWS_WITH_AS(add(bench.ctx, x, Var(bench.drawn("y", {2, 3}))),
                       "add: b is f32 [2,3], but must be f32 [2,3,4]", ShapeError);
  CHECK_THROWS_AS(mul(bench.ctx, x, Var(bench.drawn("y", {2, 3, 4}, DType::bf16))), ShapeError);
}
