#include "autograd/tape.h"

#include <doctest/doctest.h>

#include "autograd/ops/activation.h"
#include "autograd/ops/elementwise.h"
#include "autograd/ops/linear.h"
#include "bench.h"
#include "core/error.h"
#include "kernels/basic.h"

using namespace fovea;
using namespace fovea::test;

namespace {

// x times a constant, and x itself: one op, two outputs.
std::vector<Var> twice_and_thrice(Ctx& ctx, const Var& x) {
  const std::vector<Tensor> outs{ctx.empty_like(x.value()), ctx.empty_like(x.value())};
  FOVEA_ON(ctx.device, scale_forward(ctx.stream.ref(), outs[0].view(), x.view(), 2.0));
  FOVEA_ON(ctx.device, scale_forward(ctx.stream.ref(), outs[1].view(), x.view(), 3.0));
  auto backward = [gx = x.grad()](Ctx& c, std::span<const Tensor> dout) {
    for (std::size_t i = 0; i < 2; ++i) {
      if (!dout[i].defined()) continue;
      const Tensor dx = c.empty_like(dout[i]);
      FOVEA_ON(c.device,
               scale_forward(c.stream.ref(), dx.view(), dout[i].view(), i == 0 ? 2.0 : 3.0));
      give(c, gx, dx);
    }
  };
  return finish(ctx, "twice_and_thrice", outs, {x.grad()}, std::move(backward));
}

Tensor seed_of(double value, Shape shape = {1}) {
  return Tensor::from(std::vector<double>(static_cast<std::size_t>(shape.numel()), value), shape,
                      DType::f32);
}

}  // namespace

TEST_CASE("a product's gradients are the other factors") {
  Bench bench;
  Tape tape;
  bench.ctx.tape = &tape;
  const Var a = leaf(bench.tensor({2, 3}, {2})), b = leaf(bench.tensor({5, 7}, {2}));
  const Var y = mul(bench.ctx, a, b);
  tape.backward(bench.ctx, y, bench.tensor({1, 10}, {2}));
  CHECK(gradient(a) == std::vector<double>{5, 70});
  CHECK(gradient(b) == std::vector<double>{2, 30});
  CHECK(tape.size() == 0);
}

TEST_CASE("gradients of several outputs of one op are summed, also if one is missing") {
  for (const bool both : {true, false}) {
    Bench bench;
    Tape tape;
    bench.ctx.tape = &tape;
    const Var x = leaf(bench.tensor({1}, {1}));
    const std::vector<Var> y = twice_and_thrice(bench.ctx, x);
    CHECK(y[1].value().item() == 3);
    tape.backward(bench.ctx, y, std::vector<Tensor>{seed_of(1), both ? seed_of(10) : Tensor{}});
    CHECK(gradient(x)[0] == (both ? 32 : 2));
  }
}

TEST_CASE("a value with several readers gets the sum of their gradients") {
  Bench bench;
  Tape tape;
  bench.ctx.tape = &tape;
  const Var x = leaf(bench.tensor({3}, {1}));
  const Var y = add(bench.ctx, mul(bench.ctx, x, x), scale(bench.ctx, x, 4));
  tape.backward(bench.ctx, y, seed_of(1));
  CHECK(gradient(x)[0] == 10);
}

TEST_CASE("a gradient shared by two values is not written through one of them") {
  Bench bench;
  Tape tape;
  bench.ctx.tape = &tape;
  const Var a = leaf(bench.tensor({1}, {1})), b = leaf(bench.tensor({1}, {1}));
  const Var scaled = scale(bench.ctx, a, 7);  // a second reader of a, run last
  const Var y = add(bench.ctx, add(bench.ctx, a, b), scaled);
  const Tensor seed = seed_of(1);
  tape.backward(bench.ctx, y, seed);
  CHECK(gradient(a)[0] == 8);
  CHECK(gradient(b)[0] == 1);
  CHECK(seed.item() == 1);
}

TEST_CASE("nothing is recorded without a tape or without a wanted gradient") {
  Bench bench;
  const Var x = leaf(bench.tensor({1}, {1}));
  CHECK(!scale(bench.ctx, x, 2).requires_grad());
  Tape tape;
  bench.ctx.tape = &tape;
  CHECK(!scale(bench.ctx, x.detached(), 2).requires_grad());
  CHECK(tape.size() == 0);
}

TEST_CASE("frozen inputs get no gradient and the others the same as before") {
  Bench bench;
  const Tensor xv = bench.drawn("x", {3, 4}), wv = bench.drawn("w", {5, 4}),
               bv = bench.drawn("b", {5});
  std::vector<double> dx, dw, db;
  for (int frozen = -1; frozen < 3; ++frozen) {
    Tape tape;
    bench.ctx.tape = &tape;
    const Var x = frozen == 0 ? Var(xv) : leaf(xv), w = frozen == 1 ? Var(wv) : parameter(wv);
    const Var b = frozen == 2 ? Var(bv) : parameter(bv);
    const Var y = linear(bench.ctx, x, w, b);
    tape.backward(bench.ctx, y, ones(y));
    if (frozen < 0) {
      dx = gradient(x);
      dw = gradient(w);
      db = gradient(b);
    }
    if (frozen != 0) CHECK(gradient(x) == dx);
    if (frozen != 1) CHECK(gradient(w) == dw);
    if (frozen != 2) CHECK(gradient(b) == db);
  }
}

TEST_CASE("12 residual additions of 1 MiB keep 1 MiB, and backward gives everything back") {
  Bench bench;
  constexpr std::int64_t kElements = (1 << 20) / 4;
  const Tensor branch = seed_of(1, {kElements});
  Tape tape;
  bench.ctx.tape = &tape;
  {
    const Var x = leaf(branch);
    Var y = x;
    for (int i = 0; i < 12; ++i)
      y = add(bench.ctx, y, Var(branch));
    const std::size_t after_forward = bench.memory.stats().live;
    CHECK(after_forward >= 1 << 20);
    CHECK(after_forward < (1 << 20) + 4096);
    tape.backward(bench.ctx, y, branch);
    CHECK(bench.memory.stats().live ==
          after_forward);  // y itself; the gradient is the seed, passed on
  }
  CHECK(bench.memory.stats().live == 0);
}

TEST_CASE("memory is given back while the tape unwinds") {
  Bench bench;
  constexpr std::int64_t kElements = (1 << 20) / 4;
  Tape tape;
  bench.ctx.tape = &tape;
  const Var x = leaf(seed_of(0.5, {kElements}));
  Var y = gelu(bench.ctx, x);
  for (int i = 0; i < 9; ++i)
    y = gelu(bench.ctx, y);
  CHECK(bench.memory.stats().live / (1 << 20) == 10);
  bench.memory.reset_peak();
  const Tensor seed = seed_of(1, {kElements});
  tape.backward(bench.ctx, y, seed);
  // 10 saved, one gradient coming and one going: each saved one went before the next was needed.
  CHECK(bench.memory.stats().peak / (1 << 20) <= 12);
  CHECK(bench.memory.stats().live / (1 << 20) == 2);  // y and the gradient of x
}

TEST_CASE("the memory backward takes carries the name of the op that runs backward") {
  Bench bench;
  Tape tape;
  bench.ctx.tape = &tape;
  const Var x = leaf(seed_of(0.5, {1 << 16}));
  const Var y = gelu(bench.ctx, x);
  tape.backward(bench.ctx, y, seed_of(1, {1 << 16}));
  for (const TagBytes& row : bench.memory.stats().by_tag)
    CHECK(row.tag == "gelu");
  CHECK(bench.ctx.backward_of == nullptr);
  CHECK(bench.ctx.tape == &tape);
}

TEST_CASE("a parameter reports ready once, after its last use, tied weights included") {
  Bench bench;
  Tape tape;
  bench.ctx.tape = &tape;
  const Var w = parameter(bench.drawn("w", {4, 4})), x = leaf(bench.drawn("x", {2, 4}));
  std::vector<int> uses_seen;
  int ready = 0;
  w.grad()->on_ready = [&] { ++ready; };
  const Var first = linear(bench.ctx, x, w, {});
  const Var between = finish(bench.ctx, "between", first.value(), {first.grad()},
                             [&, g = first.grad()](Ctx& c, std::span<const Tensor> dout) {
                               uses_seen.push_back(w.grad()->uses);
                               CHECK(ready == 0);
                               give(c, g, dout[0]);
                             });
  const Var y = linear(bench.ctx, between, w, {});
  CHECK(w.grad()->uses == 2);
  tape.backward(bench.ctx, y, ones(y));
  CHECK(uses_seen == std::vector<int>{1});
  CHECK(ready == 1);
  CHECK(w.grad()->uses == 0);
}

TEST_CASE("a parameter that was read but gets no gradient reports ready too") {
  Bench bench;
  Tape tape;
  bench.ctx.tape = &tape;
  const Var w = parameter(bench.drawn("w", {4, 4})), x = leaf(bench.drawn("x", {2, 4}));
  int ready = 0;
  w.grad()->on_ready = [&] { ++ready; };
  linear(bench.ctx, x, w, {});
  const Var y = scale(bench.ctx, x, 2);
  tape.backward(bench.ctx, y, ones(y));
  CHECK(ready == 1);
}

TEST_CASE("close_unused reports the parameters that nobody read, and no others") {
  Bench bench;
  Tape tape;
  bench.ctx.tape = &tape;
  const Var used = parameter(bench.drawn("w", {4, 4})),
            unused = parameter(bench.drawn("v", {4, 4}));
  int used_ready = 0, unused_ready = 0;
  used.grad()->on_ready = [&] { ++used_ready; };
  unused.grad()->on_ready = [&] { ++unused_ready; };
  const Var y = linear(bench.ctx, Var(bench.drawn("x", {2, 4})), used, {});
  Tape::close_unused(std::vector<GradRef>{used.grad(), unused.grad(), nullptr});
  CHECK(used_ready == 0);
  CHECK(unused_ready == 1);
  tape.backward(bench.ctx, y, ones(y));
  CHECK(used_ready == 1);
  CHECK(unused_ready == 1);
}

TEST_CASE("gradients of a parameter add up over micro-batches") {
  Bench bench;
  const Var w = parameter(bench.tensor({2}, {1, 1}));
  for (int i = 0; i < 3; ++i) {
    Tape tape;
    bench.ctx.tape = &tape;
    const Var y = linear(bench.ctx, Var(bench.tensor({5}, {1, 1})), w, {});
    tape.backward(bench.ctx, y, seed_of(1, {1, 1}));
  }
  CHECK(gradient(w)[0] == 15);
}

TEST_CASE("dump prints one line a node in execution order") {
  Bench bench;
  Tape tape;
  bench.ctx.tape = &tape;
  const Var x = leaf(bench.tensor({1}, {1}));
  const Var y = add(bench.ctx, scale(bench.ctx, x, 2), Var(bench.tensor({1}, {1})));
  twice_and_thrice(bench.ctx, y);
  CHECK(tape.dump() ==
        "0 scale 1 of 1 inputs wanted, 1 output\n"
        "1 add 1 of 2 inputs wanted, 1 output\n"
        "2 twice_and_thrice 1 of 1 inputs wanted, 2 outputs\n");
}

TEST_CASE("a seed that does not fit the output is refused") {
  Bench bench;
  Tape tape;
  bench.ctx.tape = &tape;
  const Var y = scale(bench.ctx, leaf(bench.tensor({1, 2}, {2})), 2);
  CHECK_THROWS_WITH_AS(tape.backward(bench.ctx, y, seed_of(1, {3})),
                       "backward: the seed [3] does not fit the output [2]", ShapeError);
}
