// checkpoint(): memory for time, and the same bits.

#include <doctest/doctest.h>

#include "autograd/ops/activation.h"
#include "autograd/ops/elementwise.h"
#include "autograd/ops/linear.h"
#include "autograd/ops/loss.h"
#include "autograd/tape.h"
#include "bench.h"
#include "core/error.h"

using namespace fovea;
using namespace fovea::test;

namespace {

// x, and a failure on the way back.
Var broken(Ctx& ctx, const Var& x) {
  auto backward = [](Ctx&, std::span<const Tensor>) {
    throw DeviceError("broken on the way back");
  };
  return finish(ctx, "broken", x.value(), {x.grad()}, std::move(backward));
}

Tensor seed_of(double value, Shape shape = {1}) {
  return Tensor::from(std::vector<double>(static_cast<std::size_t>(shape.numel()), value), shape,
                      DType::f32);
}

// A block that reads w twice: x + gelu(x w^T) w^T.
std::vector<Var> block(Ctx& ctx, const Var& x, const Var& w) {
  return {add(ctx, x, linear(ctx, gelu(ctx, linear(ctx, x, w, {})), w, {}))};
}

}  // namespace

TEST_CASE("checkpoint gives the bits of a plain run, and ready once for a weight tied across it") {
  Bench bench;
  const Tensor xv = bench.drawn("x", {6, 8}), wv = bench.drawn("w", {8, 8});
  std::vector<std::vector<double>> values, dxs, dws;
  for (int depth = 0; depth < 3; ++depth) {  // plain, in a block, in a block in a block
    Tape tape;
    bench.ctx.tape = &tape;
    const Var x = leaf(xv), w = parameter(wv);
    int ready = 0;
    w.grad()->on_ready = [&] {
      ++ready;
      CHECK(w.grad()->uses == 0);
    };
    const auto inner = [w](Ctx& c, std::span<const Var> in) { return block(c, in[0], w); };
    const auto nested = [inner](Ctx& c, std::span<const Var> in) {
      return checkpoint(c, inner, {in[0]});
    };
    Var y = linear(bench.ctx, x, w, {});
    for (int i = 0; i < 2; ++i) {
      y = depth == 0   ? block(bench.ctx, y, w)[0]
          : depth == 1 ? checkpoint(bench.ctx, inner, {y})[0]
                       : checkpoint(bench.ctx, nested, {y})[0];
    }
    y = add(bench.ctx, y, linear(bench.ctx, x, w, {}));  // x and w are read outside too
    CHECK(w.grad()->uses == 6);
    tape.backward(bench.ctx, y, bench.drawn("seed", {6, 8}));
    CHECK(ready == 1);
    values.push_back(y.value().values());
    dxs.push_back(gradient(x));
    dws.push_back(gradient(w));
  }
  for (std::size_t i = 1; i < 3; ++i) {
    CHECK(values[i] == values[0]);
    CHECK(dxs[i] == dxs[0]);
    CHECK(dws[i] == dws[0]);
  }
}

TEST_CASE("checkpoint repeats dropout, and keeps no activations of its block") {
  Bench bench;
  const Tensor xv = bench.drawn("x", {4, 1 << 16});
  std::vector<double> plain;
  for (const bool recompute : {false, true}) {
    Tape tape;
    bench.ctx.tape = &tape;
    const Var x = leaf(xv);
    const auto fn = [](Ctx& c, std::span<const Var> in) {
      Var y = in[0];
      for (int i = 0; i < 3; ++i)
        y = gelu(c, dropout(c, y, 0.5, c.key("drop")));
      return std::vector{y};
    };
    const Var y = recompute ? checkpoint(bench.ctx, fn, {x})[0] : fn(bench.ctx, std::vector{x})[0];
    const std::size_t live = bench.memory.stats().live / (1 << 20);
    CHECK(live == (recompute ? 1 : 4));  // y; plain: the three pre-activations too
    tape.backward(bench.ctx, y, ones(y));
    if (recompute)
      CHECK(gradient(x) == plain);
    else
      plain = gradient(x);
  }
}

TEST_CASE(
    "checkpoint passes through an input, an output nobody reads and a value without gradient") {
  Bench bench;
  Tape tape;
  bench.ctx.tape = &tape;
  const Var x = leaf(bench.tensor({3}, {1})), w = parameter(bench.tensor({5}, {1}));
  int ready = 0;
  w.grad()->on_ready = [&] { ++ready; };
  const Tensor constant = bench.tensor({7}, {1});
  const std::vector<Var> y =
      checkpoint(bench.ctx,
                 [w, constant](Ctx& c, std::span<const Var> in) {
                   return std::vector{in[0], mul(c, in[0], w), Var(constant)};
                 },
                 {x});
  CHECK(y[2].value().item() == 7);
  CHECK(!y[2].requires_grad());
  const Var z = scale(bench.ctx, y[0], 10);
  tape.backward(bench.ctx, z, seed_of(1));
  CHECK(gradient(x)[0] == 10);
  CHECK(gradient(w)[0] == 0);
  CHECK(ready == 1);
}

TEST_CASE("a block whose outputs nobody reads still reports its parameters") {
  Bench bench;
  Tape tape;
  bench.ctx.tape = &tape;
  const Var x = leaf(bench.tensor({3}, {1})), w = parameter(bench.tensor({5}, {1}));
  int ready = 0;
  w.grad()->on_ready = [&] { ++ready; };
  checkpoint(bench.ctx,
             [w](Ctx& c, std::span<const Var> in) { return std::vector{mul(c, in[0], w)}; }, {x});
  const Var y = scale(bench.ctx, x, 2);
  tape.backward(bench.ctx, y, seed_of(1));
  CHECK(ready == 1);
}

TEST_CASE("a dropped or failed tape leaves no uses and the context as it was") {
  Bench bench;
  const Var x = leaf(bench.drawn("x", {2, 4})), w = parameter(bench.drawn("w", {4, 4}));
  const auto fn = [w](Ctx& c, std::span<const Var> in) { return block(c, in[0], w); };
  {
    Tape tape;
    bench.ctx.tape = &tape;
    checkpoint(bench.ctx, fn, {linear(bench.ctx, x, w, {})});
    CHECK(w.grad()->uses == 3);
  }
  CHECK(w.grad()->uses == 0);
  Tape tape;
  bench.ctx.tape = &tape;
  const auto failing = [fn](Ctx& c, std::span<const Var> in) {
    return std::vector{broken(c, fn(c, in)[0])};
  };
  const Var y =
      linear(bench.ctx, checkpoint(bench.ctx, failing, {linear(bench.ctx, x, w, {})})[0], w, {});
  CHECK_THROWS_AS(tape.backward(bench.ctx, y, ones(y)), DeviceError);
  CHECK(w.grad()->uses == 0);
  CHECK(tape.size() == 0);
  CHECK(bench.ctx.tape == &tape);
  CHECK(bench.ctx.backward_of == nullptr);
  const auto refusing = [](Ctx&, std::span<const Var>) -> std::vector<Var> {
    throw DeviceError("no");
  };
  CHECK_THROWS_AS(checkpoint(bench.ctx, refusing, {x}), DeviceError);
  CHECK(bench.ctx.tape == &tape);
}

TEST_CASE("a loss inside a recomputed block makes its gradients in the second run only") {
  Bench bench;
  const Tensor xv = bench.drawn("x", {6, 4}), wv = bench.drawn("w", {5, 4});
  const Tensor targets = bench.ids({0, 1, -1, 3, 4, 2}, {6});
  std::vector<double> dx, dw;
  for (const bool recompute : {false, true}) {
    Tape tape;
    bench.ctx.tape = &tape;
    const Var x = leaf(xv), w = parameter(wv);
    const auto fn = [w, targets](Ctx& c, std::span<const Var> in) {
      return std::vector{linear_cross_entropy(c, in[0], w, targets, {.chunk_rows = 4}).sum};
    };
    const Var loss =
        recompute ? checkpoint(bench.ctx, fn, {x})[0] : fn(bench.ctx, std::vector{x})[0];
    tape.backward(bench.ctx, loss, seed_of(0.25));
    if (recompute) {
      CHECK(gradient(x) == dx);
      CHECK(gradient(w) == dw);
    }
    dx = gradient(x);
    dw = gradient(w);
  }
}

TEST_CASE("the first run of a recomputed loss spends nothing on gradients") {
  double flops[2];
  for (const bool recompute : {false, true}) {
    Stream stream(kMeta);
    CachingAllocator memory{memory_source(kMeta)};
    Ctx ctx{.device = kMeta, .stream = stream, .activations = memory};
    Tape tape;
    ctx.tape = &tape;
    const Var x = leaf(ctx.empty({6, 4}, DType::f32)), w = leaf(ctx.empty({5, 4}, DType::f32));
    const Tensor targets = ctx.empty({6}, DType::i32);
    const auto fn = [w, targets](Ctx& c, std::span<const Var> in) {
      return std::vector{linear_cross_entropy(c, in[0], w, targets).sum};
    };
    const Var loss = recompute ? checkpoint(ctx, fn, {x})[0] : fn(ctx, std::vector{x})[0];
    tape.backward(ctx, loss, ctx.empty({}, DType::f32));
    flops[recompute ? 1 : 0] = stream.cost().flops;
  }
  CHECK(flops[0] == 3 * 2.0 * 6 * 4 * 5);
  CHECK(flops[1] == 4 * 2.0 * 6 * 4 * 5);
}
