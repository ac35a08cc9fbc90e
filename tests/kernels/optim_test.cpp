#include "kernels/optim.h"

#include <cmath>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include "autograd/bench.h"

using namespace fovea;
using test::Bench;

namespace {

// Flat buffers of n elements, and the scalars.
struct Update {
  Bench bench;
  std::int64_t n;
  DType dtype;
  Tensor master, compute, first, second, gradient, decay, factors, scalars;

  explicit Update(std::int64_t count, DType state = DType::f64, DType computed = DType::bf16,
                  int threads = 1)
      : bench(threads),
        n(count),
        dtype(state),
        master(bench.drawn("w", {n}, state)),
        compute(Tensor::from(std::vector<double>(static_cast<std::size_t>(n)), {n}, computed)),
        first(Tensor::from(std::vector<double>(static_cast<std::size_t>(n)), {n}, state)),
        second(Tensor::from(std::vector<double>(static_cast<std::size_t>(n)), {n}, state)),
        gradient(bench.drawn("g", {n}, state)),
        scalars(Tensor::empty({kStepScalars}, DType::f64, kCpu)) {
    const std::int64_t blocks = (n + kDecayBlock - 1) / kDecayBlock;
    decay = Tensor::empty({blocks}, DType::u8, kCpu);
    for (std::int64_t i = 0; i < blocks; ++i)
      decay.data<std::uint8_t>()[i] = i % 2 == 0 ? 1 : 0;
    now() = {};
    now().lr = 0.01;
  }
  StepScalars& now() { return *scalars.data<StepScalars>(); }
  void decide(const DecideArgs& args) {
    const Tensor partials = Tensor::empty({(n + kNormChunk - 1) / kNormChunk}, DType::f64, kCpu);
    cpu::squared_norm(bench.stream.ref(), partials.view(), gradient.view());
    cpu::scaler_decide(bench.stream.ref(), scalars.view(), partials.view(), args);
  }
  // Of the blocks' learning rates, in turns.
  void set_factors(const std::vector<double>& turns) {
    std::vector<double> all;
    for (std::int64_t i = 0; i < decay.numel(); ++i)
      all.push_back(turns[static_cast<std::size_t>(i) % turns.size()]);
    factors = Tensor::from(all, {decay.numel()}, DType::f32);
  }
  void step(const AdamWArgs& args) {
    cpu::adamw_step(bench.stream.ref(), master.view(), compute.view(), first.view(), second.view(),
                    gradient.view(), decay.view(), factors.view(), scalars.view(), args);
  }
};

constexpr AdamWArgs kAdam{.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};
constexpr DecideArgs kDecide{.beta1 = 0.9, .beta2 = 0.95};
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

}  // namespace

TEST_CASE("AdamW follows its formula over several steps, decaying only marked blocks") {
  for (const DType dtype : {DType::f64, DType::f32}) {
    Update u(200, dtype);
    std::vector<double> w = u.master.values(), m(200), v(200);
    const std::vector<double> g = u.gradient.values();
    for (int t = 1; t <= 3; ++t) {
      u.decide(kDecide);
      u.step(kAdam);
      for (std::size_t i = 0; i < 200; ++i) {
        m[i] = 0.9 * m[i] + 0.1 * g[i];
        v[i] = 0.95 * v[i] + 0.05 * g[i] * g[i];
        if (i / 64 % 2 == 0) w[i] *= 1 - 0.01 * 0.1;
        w[i] -= 0.01 * (m[i] / (1 - std::pow(0.9, t))) /
                (std::sqrt(v[i] / (1 - std::pow(0.95, t))) + 1e-8);
      }
    }
    const double bound = dtype == DType::f64 ? 1e-14 : 1e-6;
    const std::vector<double> found = u.master.values();
    for (std::size_t i = 0; i < 200; ++i)
      CHECK(std::fabs(found[i] - w[i]) < bound);
    CHECK(u.now().adam_count == 3);
  }
}

TEST_CASE("a block's factor multiplies its learning rate, in the step and in the decay") {
  for (const DType dtype : {DType::f64, DType::f32}) {
    Update u(300, dtype);
    u.set_factors({30, 1, 0.25});
    std::vector<double> w = u.master.values(), m(300), v(300);
    const std::vector<double> g = u.gradient.values();
    for (int t = 1; t <= 3; ++t) {
      u.decide(kDecide);
      u.step(kAdam);
      for (std::size_t i = 0; i < 300; ++i) {
        const double lr = 0.01 * (i / 64 % 3 == 0 ? 30 : i / 64 % 3 == 1 ? 1 : 0.25);
        m[i] = 0.9 * m[i] + 0.1 * g[i];
        v[i] = 0.95 * v[i] + 0.05 * g[i] * g[i];
        if (i / 64 % 2 == 0) w[i] *= 1 - lr * 0.1;
        w[i] -= lr * (m[i] / (1 - std::pow(0.9, t))) /
                (std::sqrt(v[i] / (1 - std::pow(0.95, t))) + 1e-8);
      }
    }
    const double bound = dtype == DType::f64 ? 1e-14 : 1e-6;
    const std::vector<double> found = u.master.values();
    for (std::size_t i = 0; i < 300; ++i)
      CHECK(std::fabs(found[i] - w[i]) < bound);
  }
}

TEST_CASE("factors of one have the bits of none, and a factor leaves other blocks' bits alone") {
  for (const DType dtype : {DType::f64, DType::f32}) {
    Update none(300, dtype), ones(300, dtype), some(300, dtype);
    ones.set_factors({1});
    some.set_factors({1, 3});
    for (Update* u : {&none, &ones, &some}) {
      for (int t = 0; t < 2; ++t) {
        u->decide(kDecide);
        u->step(kAdam);
      }
    }
    CHECK(ones.master.values() == none.master.values());
    CHECK(ones.compute.values() == none.compute.values());
    CHECK(some.first.values() == none.first.values());
    CHECK(some.second.values() == none.second.values());
    const std::vector<double> a = some.master.values(), b = none.master.values();
    for (std::size_t i = 0; i < 300; ++i)
      CHECK((a[i] == b[i]) == (i / 64 % 2 == 0));
  }
}

TEST_CASE("the compute copy is the rounded master, and may be the master itself") {
  for (const DType computed : {DType::bf16, DType::f16, DType::f32}) {
    Update u(130, DType::f32, computed);
    u.decide(kDecide);
    u.step(kAdam);
    CHECK(u.compute.values() == Tensor::from(u.master.values(), {130}, computed).values());
  }
  Update same(130, DType::f32), apart(130, DType::f32);
  same.compute = same.master;
  same.decide(kDecide);
  same.step(kAdam);
  apart.decide(kDecide);
  apart.step(kAdam);
  CHECK(same.master.values() == apart.master.values());
}

TEST_CASE(
    "a skipped step leaves weights, moments and Adam's count unchanged, and halves the scale") {
  Update u(100, DType::f32);
  u.now().scale = 1024;
  u.decide(kDecide);
  u.step(kAdam);
  const auto master = u.master.values(), first = u.first.values(), second = u.second.values(),
             compute = u.compute.values();
  for (const double bad : {kNan, HUGE_VAL}) {
    u.gradient = Tensor::from(
        [&] {
          auto g = u.gradient.values();
          g[57] = bad;
          return g;
        }(),
        {100}, DType::f32);
    u.decide(kDecide);
    u.step(kAdam);
    CHECK(u.now().finite == 0);
  }
  CHECK(u.master.values() == master);
  CHECK(u.compute.values() == compute);
  CHECK(u.first.values() == first);
  CHECK(u.second.values() == second);
  CHECK(u.now().adam_count == 1);
  CHECK(u.now().skipped_in_a_row == 2);
  CHECK(u.now().scale == 256);
  u.gradient = u.bench.drawn("g", {100});
  u.decide(kDecide);
  CHECK(u.now().skipped_in_a_row == 0);
  CHECK(u.now().skipped == 2);
  CHECK(u.now().adam_count == 2);
}

TEST_CASE("the scale never falls below one") {
  Update u(10, DType::f32);
  u.gradient = Tensor::from(std::vector<double>(10, kNan), {10}, DType::f32);
  u.decide(kDecide);
  CHECK(u.now().scale == 1);
}

TEST_CASE("the scale doubles after growth_interval finite steps in a row") {
  Update u(10, DType::f32);
  const DecideArgs args{.growth_interval = 3};
  std::vector<double> scales;
  for (int i = 0; i < 7; ++i) {
    u.decide(args);
    scales.push_back(u.now().scale);
  }
  CHECK(scales == std::vector<double>{1, 1, 2, 2, 2, 4, 4});
}

TEST_CASE("a gradient above max_norm is scaled down to it, without the loss scale") {
  Update u(3, DType::f64);
  u.gradient = Tensor::from(std::vector<double>{8 * 3.0, 8 * 4.0, 0}, {3}, DType::f64);
  u.now().scale = 8;
  DecideArgs args = kDecide;
  args.max_norm = 1;
  u.decide(args);
  CHECK(u.now().norm == 5);
  CHECK(u.now().multiplier == doctest::Approx(1.0 / 5 / 8).epsilon(1e-15));
  args.max_norm = 6;
  u.decide(args);
  CHECK(u.now().multiplier == 1.0 / 8);
  args.max_norm = 0;
  u.decide(args);
  CHECK(u.now().multiplier == 1.0 / 8);
}

TEST_CASE("the multiplier uses the scale that the gradients were made with") {
  Update u(10, DType::f32);
  u.now().scale = 4;
  u.decide({.growth_interval = 1});
  CHECK(u.now().scale == 8);
  CHECK(u.now().multiplier == 0.25);
}

TEST_CASE("norm and update have the same bits on one and on three threads") {
  Update one(200003, DType::f32, DType::bf16, 1), three(200003, DType::f32, DType::bf16, 3);
  DecideArgs args = kDecide;
  args.max_norm = 0.5;
  for (Update* u : {&one, &three}) {
    u->decide(args);
    u->step(kAdam);
  }
  CHECK(one.now().norm == three.now().norm);
  CHECK(one.master.values() == three.master.values());
  CHECK(one.compute.values() == three.compute.values());
}

TEST_CASE("the squared norm is summed by chunks of 65,536, whatever lies behind them") {
  const Bench bench;
  const Tensor x = bench.drawn("x", {150000});
  const Tensor all = Tensor::empty({3}, DType::f64, kCpu),
               second = Tensor::empty({1}, DType::f64, kCpu);
  cpu::squared_norm(bench.stream.ref(), all.view(), x.view());
  cpu::squared_norm(bench.stream.ref(), second.view(), x.slice(0, 65536, 131072).view());
  CHECK(all.values()[1] == second.values()[0]);
  double exact = 0;
  for (const double v : x.values())
    exact += v * v;
  CHECK(all.values()[0] + all.values()[1] + all.values()[2] ==
        doctest::Approx(exact).epsilon(1e-12));
}
