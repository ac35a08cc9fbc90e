#include "optim/adamw.h"

#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include <doctest/doctest.h>

#include "core/half.h"

using namespace fovea;
using optim::AdamW;
using optim::GradScaler;
using optim::OptimConfig;
using optim::ParameterStore;
using optim::StoreMode;

namespace {

// A matrix that decays and a vector that does not.
class Toy final : public nn::Module {
 public:
  Toy() {
    own("weight", {3, 5}, nn::Init::normal(1.0));
    own("bias", {5}, nn::Init::constant(0.5));
    set_path("");
  }
};

struct Bench {
  explicit Bench(Precision precision, optim::ScalerConfig scaler_config = {},
                 const std::vector<optim::LrScale>& scales = {}) {
    ctx.precision = precision;
    ctx.seed = 3;
    store = std::make_unique<ParameterStore>(
        ctx, model, StoreMode::train, std::span<const std::string>{},
        std::span<const std::string>{}, optim::MomentCut{}, scales);
    gradient = Tensor::empty({store->elements()}, state_dtype(precision), kCpu);
    set_gradient(0);
    config.lr = 0.1;
    config.beta1 = 0.8;
    config.beta2 = 0.95;
    config.eps = 1e-3;
    config.weight_decay = 0.25;
    scaler = std::make_unique<GradScaler>(ctx, scaler_config, config, store->elements());
  }

  void set(std::int64_t i, double value) {
    if (gradient.dtype() == DType::f64)
      gradient.data<double>()[i] = value;
    else
      gradient.data<float>()[i] = static_cast<float>(value);
  }
  // The same for every element of a parameter, zero in the padding; times the loss scale.
  void set_gradient(double value) {
    for (std::int64_t i = 0; i < store->elements(); ++i)
      set(i, 0);
    const double scale = scaler ? scaler->state(stream).scale : 1;
    for (const optim::Segment& segment : store->segments()) {
      for (std::int64_t i = 0; i < segment.size; ++i)
        set(segment.begin + i, value * scale);
    }
  }
  void step() {
    Staging staging(stream);
    scaler->stage(staging, config.lr, 1);
    scaler->decide(ctx, gradient);
    AdamW(config).step(ctx, *store, gradient, *scaler);
  }
  StepScalars state() { return scaler->state(stream); }
  double weight(std::int64_t i) const {
    return store->masters().values()[static_cast<std::size_t>(i)];
  }

  Stream stream{kCpu, 1};
  CachingAllocator activations{memory_source(kCpu)};
  Ctx ctx{kCpu, stream, activations};
  Toy model;
  OptimConfig config;
  std::unique_ptr<ParameterStore> store;
  Tensor gradient;
  std::unique_ptr<GradScaler> scaler;
};

// One element by the textbook, in f64. Loshchilov and Hutter 2019.
struct Textbook {
  double w, m = 0, v = 0;
  int t = 0;
  void step(const OptimConfig& c, double g, bool decay) {
    ++t;
    m = c.beta1 * m + (1 - c.beta1) * g;
    v = c.beta2 * v + (1 - c.beta2) * g * g;
    if (decay) w -= c.lr * c.weight_decay * w;
    w -= c.lr * (m / (1 - std::pow(c.beta1, t))) /
         (std::sqrt(v / (1 - std::pow(c.beta2, t))) + c.eps);
  }
};

constexpr double kF64 = 1e-13;

}  // namespace

TEST_CASE("AdamW follows the textbook, decaying matrices only") {
  Bench bench(Precision::fp64);
  const std::int64_t bias = bench.store->segments()[1].begin;
  Textbook w{bench.weight(0)}, b{bench.weight(bias)};
  for (const double g : {0.3, -0.2, 0.05, 0.0, 1.5}) {
    bench.set_gradient(g);
    bench.step();
    w.step(bench.config, g, true);
    b.step(bench.config, g, false);
    CHECK(std::fabs(bench.weight(0) - w.w) < kF64);
    CHECK(std::fabs(bench.weight(bias) - b.w) < kF64);
  }
}

TEST_CASE("a group follows the textbook at its own learning rate") {
  Bench bench(Precision::fp64, {}, {{"weight", 30}, {"bias", 0.25}});
  const std::int64_t bias = bench.store->segments()[1].begin;
  OptimConfig fast = bench.config, slow = bench.config;
  fast.lr *= 30;
  slow.lr *= 0.25;
  Textbook w{bench.weight(0)}, b{bench.weight(bias)};
  for (const double g : {0.3, -0.2, 0.05, 0.0, 1.5}) {
    bench.set_gradient(g);
    bench.step();
    w.step(fast, g, true);
    b.step(slow, g, false);
    CHECK(std::fabs(bench.weight(0) - w.w) < 1e-11);
    CHECK(std::fabs(bench.weight(bias) - b.w) < kF64);
  }
}

TEST_CASE("padding stays zero") {
  Bench bench(Precision::fp32);
  bench.set_gradient(1);
  bench.step();
  const auto& first = bench.store->segments()[0];
  for (std::int64_t i = first.begin + first.size; i < bench.store->segments()[1].begin; ++i) {
    CHECK(bench.weight(i) == 0.0);
  }
}

TEST_CASE("a gradient above max_norm is scaled down to it, one below is left alone") {
  Bench clipped(Precision::fp64, {.max_norm = 1.0}), plain(Precision::fp64);
  // 20 elements of value g have norm g sqrt(20).
  clipped.set_gradient(5.0);
  plain.set_gradient(1.0 / std::sqrt(20.0));
  clipped.step();
  plain.step();
  CHECK(std::fabs(clipped.state().norm - 5 * std::sqrt(20.0)) < 1e-12);
  CHECK(std::fabs(clipped.weight(0) - plain.weight(0)) < kF64);
  clipped.set_gradient(0.01);
  clipped.step();
  CHECK(clipped.state().multiplier == 1.0);
}

TEST_CASE("a skipped step leaves weights, moments and Adam's count unchanged") {
  Bench bench(Precision::fp16_mixed);
  bench.set_gradient(0.5);
  bench.step();
  const auto masters = bench.store->masters().values(),
             first = bench.store->first_moment().values(),
             second = bench.store->second_moment().values(),
             computes = bench.store->computes().values();
  const double scale = bench.state().scale;
  CHECK(bench.state().adam_count == 1);
  bench.set(7, std::numeric_limits<double>::infinity());
  bench.step();
  CHECK(bench.store->masters().values() == masters);
  CHECK(bench.store->first_moment().values() == first);
  CHECK(bench.store->second_moment().values() == second);
  CHECK(bench.store->computes().values() == computes);
  const StepScalars after = bench.state();
  CHECK(after.adam_count == 1);
  CHECK(after.skipped == 1);
  CHECK(after.skipped_in_a_row == 1);
  CHECK(after.scale == scale / 2);
  bench.set_gradient(0.5);
  bench.step();
  CHECK(bench.state().adam_count == 2);
  CHECK(bench.state().skipped_in_a_row == 0);
}

TEST_CASE("the loss scale starts at 65536, and only in fp16-mixed") {
  CHECK(Bench(Precision::fp16_mixed).state().scale == 65536);
  for (const Precision p : {Precision::fp64, Precision::fp32, Precision::bf16_mixed}) {
    CHECK(Bench(p).state().scale == 1);
    CHECK_FALSE(Bench(p).scaler->scales());
  }
}

TEST_CASE("the loss scale doubles after enough clean steps and never falls below 1") {
  Bench bench(Precision::fp16_mixed, {.initial_scale = 4, .growth_interval = 3});
  for (int i = 0; i < 3; ++i) {
    bench.set_gradient(0.1);
    bench.step();
  }
  CHECK(bench.state().scale == 8);
  for (int i = 0; i < 6; ++i) {
    bench.set(0, std::numeric_limits<double>::quiet_NaN());
    bench.step();
  }
  CHECK(bench.state().scale == 1);
}

TEST_CASE("the scale leaves the update as it is") {
  Bench small(Precision::fp16_mixed, {.initial_scale = 1}),
      large(Precision::fp16_mixed, {.initial_scale = 1024});
  small.set_gradient(0.375);
  large.set_gradient(0.375);
  small.step();
  large.step();
  CHECK(small.store->masters().values() == large.store->masters().values());
  CHECK(small.state().norm == large.state().norm);
}

TEST_CASE("the 16-bit copy is the rounded master after every step") {
  for (const Precision precision : {Precision::fp16_mixed, Precision::bf16_mixed}) {
    Bench bench(precision);
    bench.set_gradient(0.7);
    bench.step();
    const Tensor masters = bench.store->masters();
    Tensor rounded = Tensor::empty(masters.shape(), bench.store->computes().dtype(), kCpu);
    copy_host(rounded.view(), masters.view());
    CHECK(bench.store->computes().values() == rounded.values());
  }
}

TEST_CASE("backward starts from scale over targets") {
  Bench bench(Precision::fp16_mixed);
  Staging staging(bench.stream);
  bench.scaler->stage(staging, 0.1, 256);
  const Tensor seed = bench.scaler->seed(bench.ctx);
  CHECK(seed.dtype() == DType::f32);
  CHECK(seed.item() == 65536.0 / 256);
}

TEST_CASE("a restored scaler goes on where it stood") {
  Bench bench(Precision::fp16_mixed), other(Precision::fp16_mixed);
  for (int i = 0; i < 3; ++i) {
    bench.set_gradient(0.2);
    bench.step();
  }
  other.scaler->restore(other.stream, bench.state());
  CHECK(other.state().adam_count == 3);
  CHECK(other.state().good_steps == bench.state().good_steps);
}
