// Learned S: masks, schedules, pruning, collapse; spa.md 1.6, 1.7, 5.2, 5.4.

#include <algorithm>
#include <cmath>
#include <numeric>

#include "attention/spa/health.h"
#include "attention/spa/prune.h"
#include "attention/spa/schedule.h"
#include "autograd/ops/learned_mask.h"
#include "core/error.h"
#include "spa_bench.h"

using namespace fovea;
using namespace fovea::attention;
using namespace fovea::test;
using spa::Keep;
using spa::LearnChoice;

namespace {

// z and dz/dG of one entry of weight 1.
std::pair<double, double> mask_of(MaskRule rule, double u, double g, double tau,
                                  bool pruned = false) {
  Stream stream(kCpu);
  CachingAllocator memory(memory_source(kCpu));
  Tape tape;
  Ctx ctx{.device = kCpu, .stream = stream, .activations = memory};
  ctx.precision = Precision::fp64;
  ctx.tape = &tape;
  const auto one = [](double x, DType dtype) { return Tensor::from({{x}}, {1, 1, 1}, dtype); };
  LearnedMask mask;
  mask.w = Var(one(1, DType::f64));
  mask.g = leaf(one(g, DType::f64));
  mask.u = one(u, DType::f32);
  mask.tau = Tensor::from({{tau}}, {1}, DType::f64);
  mask.m = one(pruned ? 0 : 1, DType::u8);
  mask.rule = rule;
  const Var s = masked_matrix(ctx, mask);
  tape.backward(ctx, s, one(1, DType::f64));
  return {s.value().item(), mask.g.grad()->value.item()};
}

SpaCase learned(const std::string& more) {
  SpaCase c;
  c.options = cat("{pattern: learn, proj_dim: 4, tau: 0.6, dense_shadow: false, ", more, "}");
  c.training = true;
  for (const char* name : {"W", "G"})
    c.parameters[name] = drawn_values(name, 32);
  return c;
}

std::int64_t count(const Keep& keep) {
  return std::count(keep.begin(), keep.end(), 1);
}

}  // namespace

TEST_CASE("masks have the numbers of the specification") {
  using Kind = MaskRule::Kind;
  const auto [z, slope] = mask_of({Kind::concrete, true}, 0.7, 0.5, 0.5);
  CHECK(z == doctest::Approx(0.936707).epsilon(1e-6));
  CHECK(slope == doctest::Approx(0.118574).epsilon(1e-5));
  const auto [hard, hard_slope] = mask_of({Kind::straight, true}, 0.7, 0.5, 0.5);
  CHECK(hard == 1);
  CHECK(hard_slope == doctest::Approx(slope));
  CHECK(mask_of({Kind::straight, true}, 0.3, 0.5, 0.5).first == 0);
  CHECK(mask_of({Kind::straight, false}, 0.3, 0.5, 0.5).first == 1);  // at test time 1[G > 0]
  CHECK(mask_of({Kind::concrete, false}, 0.3, -0.5, 0.5).first == 0);
  // Stretched: 0.936707 * 1.2 - 0.1 is clipped, and then has no derivative.
  const auto [clipped, none] = mask_of({Kind::hard_concrete, true}, 0.7, 0.5, 0.5);
  CHECK(clipped == 1);
  CHECK(none == 0);
  CHECK(mask_of({Kind::hard_concrete, false}, 0.5, 0, 1).first == doctest::Approx(0.5));
  // P(z != 0) at G = 0 and tau = 2/3.
  const double expected = 1 / (1 + std::exp(2.0 / 3 * std::log(kStretchHigh / -kStretchLow) * -1));
  CHECK(expected == doctest::Approx(0.831822).epsilon(1e-6));
  SpaCase c = learned("learn_mode: hard_concrete, lambda0: 1");
  c.options =
      "{pattern: learn, proj_dim: 4, tau: 0.66666666666666667, learn_mode: hard_concrete, "
      "lambda0: 1}";
  c.parameters["G"].assign(32, 0);
  CHECK(run(c).at("aux")[0] == doctest::Approx(32 * expected));
}

TEST_CASE("gradients of W, G and the gates are derivatives, the penalty included") {
  for (const char* mode : {"concrete", "hard_concrete"}) {
    const SpaCase c = learned(cat("lambda0: 0.01, learn_mode: ", mode));
    for (const char* name : {"W", "G"})
      CHECK(gradient_error(c, name, c.parameters.at(name)) < 1e-6);
  }
  const SpaCase pruning = learned("learn_mode: magnitude");
  CHECK(gradient_error(pruning, "W", pruning.parameters.at("W")) < 1e-6);
  for (const char* gate : {"output", "score", "proj", "blend"}) {
    SpaCase c = learned(cat("learn_mode: concrete, gate: ", gate));
    CHECK(gradient_error(c, "theta", {0.3, -0.8}) < 1e-6);
    c.parameters["theta"] = {0.3, -0.8};
    CHECK(gradient_error(c, "W", c.parameters.at("W")) < 1e-6);
  }
  SpaCase shifted = learned("learn_mode: concrete, gate: logit, lambda0: 0.01");
  CHECK(gradient_error(shifted, "b", {0.4, -0.2}) < 1e-6);
  shifted.parameters["b"] = {0.4, -0.2};
  CHECK(gradient_error(shifted, "G", shifted.parameters.at("G")) < 1e-6);
}

TEST_CASE("the straight-through gradient is the relaxed formula at the hard mask") {
  // A hard mask's S is W where x > 0, so dW = z dS with the hard z, dG = W dS z'(1 - z')/tau.
  const SpaCase hard = learned("learn_mode: concrete_st"), soft = learned("learn_mode: concrete");
  const Named found = run(hard);
  const Values w = hard.parameters.at("W"), g = hard.parameters.at("G");
  // The masks, read off a run whose W is 1.
  SpaCase ones = hard;
  ones.parameters["W"].assign(32, 1);
  int kept = 0;
  for (std::size_t i = 0; i < 32; ++i) {
    if (found.at("W")[i] == 0) continue;
    ++kept;
    CHECK(found.at("G")[i] * w[i] * found.at("W")[i] > 0);  // dG / dW = W slope, slope > 0
    CHECK(std::fabs(found.at("G")[i] / found.at("W")[i] / w[i]) <= 0.25 / 0.6 + 1e-12);
  }
  CHECK(kept > 4);
  CHECK(kept < 28);
  CHECK(worst(run(soft).at("o"), found.at("o")) > 1e-6);
}

TEST_CASE("a gate at its start is no gate, bit for bit") {
  for (const char* gate : {"output", "score", "proj", "logit"}) {
    const SpaCase c = learned("learn_mode: concrete");
    const SpaCase gated = learned(cat("learn_mode: concrete, gate: ", gate));
    const Named found = run(gated), expected = run(c);
    for (const char* name : {"o", "q", "k", "v"})
      CHECK(worst(found.at(name), expected.at(name)) == 0);
  }
  const Named blend = run(learned("learn_mode: concrete, gate: blend")),
              plain = run(learned("learn_mode: concrete"));
  CHECK(worst(blend.at("o"), plain.at("o")) < 1e-12);
}

TEST_CASE("the noise of a step is the same for every sample, and another in the next step") {
  SpaCase one = learned("learn_mode: concrete"), two = one;
  one.batch = 1;
  for (const char* name : {"q", "k", "v"}) {
    one.inputs[name] = drawn_values(name, 144);
    two.inputs[name] = one.inputs[name];
    two.inputs[name].insert(two.inputs[name].end(), one.inputs[name].begin(),
                            one.inputs[name].end());
  }
  const Values o = run(two).at("o");
  const auto half = static_cast<std::ptrdiff_t>(o.size() / 2);
  CHECK(Values(o.begin(), o.begin() + half) == Values(o.begin() + half, o.end()));
  CHECK(Values(o.begin(), o.begin() + half) == run(one).at("o"));
  CHECK(run(one).at("o") == run(one).at("o"));
  SpaCase later = one;
  later.step = 1;
  CHECK(worst(run(later).at("o"), run(one).at("o")) > 1e-6);
  one.training = later.training = false;  // the deterministic mask
  CHECK(run(later).at("o") == run(one).at("o"));
}

TEST_CASE("masks at the start keep half of S, or its final density where nothing prunes") {
  const auto density = [](const std::string& options) {
    attention::Standalone alone(*find_attention("spa"), SpaCase().config,
                                config::parse(options, "test"), Precision::fp32, kCpu);
    double mean = 0, square = 0;
    for (const auto& [name, parameter] : alone.parameters()) {
      const Values values = parameter->master.values();
      for (const double x : values) {
        if (name == "G") mean += x / static_cast<double>(values.size());
        if (name == "W") square += x * x / static_cast<double>(values.size());
      }
    }
    return std::pair(1 / (1 + std::exp(-mean)), square);
  };
  const auto [half, wide] = density("{pattern: learn, proj_dim: 256}");
  CHECK(half == doctest::Approx(0.5).epsilon(0.01));
  CHECK(wide == doctest::Approx(1 / (0.5 * 256)).epsilon(0.1));  // E[S S^T] = I
  const auto [few, wider] = density("{pattern: learn, proj_dim: 256, prune_every: 0}");
  CHECK(few == doctest::Approx(0.2).epsilon(0.01));
  CHECK(wider == doctest::Approx(1 / (0.2 * 256)).epsilon(0.1));
}

TEST_CASE("temperature, sparsity and regrowth are functions of the clock") {
  LearnChoice learn;
  const auto at = [](std::int64_t step) { return nn::Clock{step, 1000, 100}; };
  CHECK(spa::temperature(learn, at(0)) == 1);
  CHECK(spa::temperature(learn, at(400)) == doctest::Approx(std::sqrt(0.1)));
  CHECK(spa::temperature(learn, at(800)) == doctest::Approx(0.1));
  CHECK(spa::temperature(learn, at(999)) == doctest::Approx(0.1));
  learn.tau_linear = true;
  CHECK(spa::temperature(learn, at(400)) == doctest::Approx(0.55));
  CHECK(spa::sparsity(learn, at(100)) == 0);
  CHECK(spa::sparsity(learn, at(300)) == doctest::Approx(0.8 * (1 - 1.0 / 8)));
  CHECK(spa::sparsity(learn, at(500)) == 0.8);
  CHECK(spa::sparsity(learn, at(900)) == 0.8);
  CHECK(spa::regrow_share(learn, at(0)) == doctest::Approx(0.3));
  CHECK(spa::regrow_share(learn, at(375)) == doctest::Approx(0.15));
  CHECK(spa::regrow_share(learn, at(750)) == 0);
  CHECK_THROWS_AS(spa::temperature(learn, nn::Clock{5, 0}), ConfigError);
  learn.tau_steps = 10;
  CHECK(spa::temperature(learn, nn::Clock{5, 0}) == doctest::Approx(0.55));
  learn.regrow_end = 500;
  CHECK(spa::regrow_share(learn, at(250)) == doctest::Approx(0.15));
  CHECK(spa::regrow_share(learn, nn::Clock{250, 0}) == doctest::Approx(0.15));
  learn.tau_steps.reset();
  learn.mode = MaskRule::Kind::magnitude;  // has none
  CHECK_NOTHROW(spa::temperature(learn, nn::Clock{5, 0}));
}

TEST_CASE("pruning keeps exactly as many as asked, the largest, the lower index of ties") {
  const Values score = {3, 1, 2, 2, 0, 5, 2, 4};
  CHECK(spa::pruned(score, 4, 3, 0, {}) == Keep{1, 0, 0, 0, 0, 1, 0, 1});
  CHECK(spa::pruned(score, 4, 4, 0, {}) == Keep{1, 0, 1, 0, 0, 1, 0, 1});
  CHECK(spa::pruned(score, 2, 4, 1, {}) == Keep{1, 0, 1, 0, 0, 1, 0, 1});
  const Keep among = {0, 1, 1, 1, 1, 0, 0, 0};
  CHECK(spa::pruned(score, 4, 2, 0, among) == Keep{0, 0, 1, 1, 0, 0, 0, 0});
  CHECK(count(spa::pruned(score, 4, 6, 0, among)) == 4);
  for (std::int64_t keep = 0; keep <= 64; ++keep)
    CHECK(count(spa::pruned(drawn_values("score", 64), 8, keep, 1, {})) ==
          std::max<std::int64_t>(keep, 8));
  // 13 of 16 rows' entries were to stay: every row keeps its best all the same.
  const Keep rows = spa::pruned(drawn_values("score", 128), 8, 13, 1, {});
  for (std::ptrdiff_t row = 0; row < 16; ++row)
    CHECK(count(Keep(rows.begin() + 8 * row, rows.begin() + 8 * row + 8)) == 1);
}

TEST_CASE("regrowing keeps the count; what leaves and what comes back are disjoint") {
  const Values w = drawn_values("w", 64), appeal = drawn_values("dS", 64);
  const Keep active = spa::pruned(drawn_values("score", 64), 8, 20, 0, {});
  for (const double share : {0.0, 0.15, 0.3, 1.0}) {
    const spa::Exchange moved = spa::exchanged(w, appeal, active, share);
    CHECK(moved.dropped.size() == moved.grown.size());
    CHECK(moved.dropped.size() <= static_cast<std::size_t>(20 * share));
    for (const std::size_t i : moved.dropped)
      CHECK(active[i] == 1);
    for (const std::size_t i : moved.grown) {
      CHECK(active[i] == 0);
      CHECK(std::find(moved.dropped.begin(), moved.dropped.end(), i) == moved.dropped.end());
    }
  }
  // The smallest leaves and is chosen again: it stays as it is.
  const spa::Exchange none = spa::exchanged(Values{1, 5, 0}, Values{9, 0, 1}, Keep{1, 1, 0}, 0.5);
  CHECK(none.dropped.empty());
  CHECK(none.grown.empty());
  const spa::Exchange one = spa::exchanged(Values{1, 5, 0}, Values{0, 0, -1}, Keep{1, 1, 0}, 0.5);
  CHECK(one.dropped == std::vector<std::size_t>{0});
  CHECK(one.grown == std::vector<std::size_t>{2});
  const spa::Exchange blind =
      spa::exchanged(Values{1, 5, 0, 0}, Values{0, 0, NAN, 1}, Keep{1, 1, 0, 0}, 0.5);
  CHECK(blind.grown == std::vector<std::size_t>{3});
}

TEST_CASE("health counts what is alive, and a collapse names its remedy") {
  LearnChoice learn;
  spa::LearnedState state{
      .w = Values(32, 0.5), .g = Values(32, 2), .m = Keep(32, 1), .u = {}, .rows = 8, .cols = 4};
  spa::Health health = spa::health_of(state, learn);
  CHECK(health.density == 1);
  CHECK(health.norm == doctest::Approx(std::sqrt(8.0)));
  CHECK(health.dead_rows == 0);
  const double p = 1 / (1 + std::exp(-2.0));
  CHECK(health.entropy == doctest::Approx(-p * std::log(p) - (1 - p) * std::log(1 - p)));
  CHECK(spa::complaint(health, 0.2, learn).find("prune_every") != std::string::npos);
  CHECK(spa::complaint(health, 1, learn).empty());
  // Row 0 pruned, column 3 switched off.
  for (std::size_t i = 0; i < 32; ++i) {
    if (i < 4) state.m[i] = 0;
    if (i % 4 >= 2) state.g[i] = -2;
  }
  health = spa::health_of(state, learn);
  CHECK(health.dead_rows == doctest::Approx(1.0 / 8));
  CHECK(health.dead_columns == doctest::Approx(0.5));
  CHECK(health.density == doctest::Approx(14.0 / 32));
  CHECK(spa::complaint(health, 0.4, learn).find("columns of S are empty") != std::string::npos);
  const auto says = [&](double target, const LearnChoice& choice, const char* what) {
    return spa::complaint(health, target, choice).find(what) != std::string::npos;
  };
  CHECK(says(0.9, learn, "lower model.attention.lambda0 (1e-05)"));
  CHECK_FALSE(says(0.9, learn, "known to collapse"));
  LearnChoice other = learn;
  other.lambda0 = 1e-3;
  CHECK(says(0.9, other, "lower model.attention.lambda0 (0.001), known to collapse above 1e-4"));
  other.lambda0 = 0;
  CHECK_FALSE(says(0.9, other, "lambda0"));
  CHECK(says(0.9, other, "lower the learning rate"));
  // Nothing is left to mask: pruning did it.
  spa::LearnedState bare = state;
  bare.m.assign(32, 0);
  health = spa::health_of(bare, learn);
  CHECK(says(0.01, learn, "lower model.attention.rho (0.8)"));
  CHECK_FALSE(says(0.01, learn, "lambda0"));
  // At temperature 0.1 the derivative of far logits is 0.
  state.u.assign(32, 0.5);
  state.tau = 0.1;
  state.g.assign(32, 3);
  CHECK(spa::health_of(state, learn).frozen == 1);
  CHECK(spa::complaint(spa::health_of(state, learn), 0.9, learn).find("tau_min") !=
        std::string::npos);
}

TEST_CASE("an empty S is told of while its masks are open, and not as if they were closed") {
  LearnChoice learn;
  spa::LearnedState state{.w = Values(32, 0.5),
                          .g = Values(32, -0.05),
                          .m = Keep(32, 1),
                          .u = {},
                          .rows = 8,
                          .cols = 4};
  const auto says = [&](double target) {
    return spa::complaint(spa::health_of(state, learn), target, learn);
  };
  CHECK(
      says(0.5) ==
      "S has collapsed: 0 % of its entries are left of 20 %; pruning leaves 100 %, but the masks "
      "are undecided: the chance of each is still about 48.8 %, that of the start, but evaluation "
      "uses S with the 0 % that are above 50 %; raise the learning rate of the masks' logits "
      "(optim.lr_scale), set model.attention.learn_mode: magnitude, or lower "
      "model.attention.lambda0 (1e-05)");
  learn.lambda0 = 0;
  CHECK(says(0.5).ends_with("(optim.lr_scale), set model.attention.learn_mode: magnitude"));
  learn.lambda0 = 1e-3;  // larger steps of the logits would not help
  CHECK(says(0.5).ends_with("lower model.attention.lambda0 (0.001), known to collapse above 1e-4"));
  // As configs/spa/books.yaml has it at step 200 of 1500, with the penalty of 1e-5.
  const spa::Health healthy{
      .density = 0.184, .unpruned = 0.685, .expected = 0.34, .entropy = 0.693};
  CHECK(spa::complaint(healthy, 0.5, LearnChoice()).empty());
  learn.lambda0 = 0;
  state.g.assign(32, -0.3);
  CHECK(says(0.5).find("their masks are closed") != std::string::npos);
  CHECK(says(0.5).find("undecided") == std::string::npos);
  // Half of the entries, which are as many as are due, in half of the columns.
  for (std::size_t i = 0; i < 32; ++i)
    state.g[i] = i % 4 < 2 ? 0.05 : -0.05;
  CHECK(says(0.5).find("50 % of the columns of S are empty; the masks are undecided") == 0);
}

TEST_CASE("a complaint names no option that counts for nothing") {
  LearnChoice learn;
  learn.mode = MaskRule::Kind::magnitude;
  spa::Health dense{.density = 1, .unpruned = 1, .expected = 1};
  CHECK(spa::complaint(dense, 0.2, learn) ==
        "S does not get sparse: 100 % of its entries are left, not 20 %; lower "
        "model.attention.prune_every (100)");
  learn.mode = MaskRule::Kind::straight;
  CHECK(spa::complaint(dense, 0.2, learn).ends_with("or raise model.attention.lambda0 (1e-05)"));
  learn.prune_every = 0;
  CHECK(spa::complaint(dense, 0.2, learn).find("let model.attention.prune_every prune") !=
        std::string::npos);
  dense.frozen = 1;
  CHECK(spa::complaint(dense, 1, learn).ends_with("raise model.attention.tau_min (0.1) to 0.2"));
  learn.tau = 0.05;
  CHECK(spa::complaint(dense, 1, learn).ends_with("raise model.attention.tau (0.05) to 0.2"));
}

TEST_CASE("what is wrong is told of once it lasts, not in the warm-up, and when the run ends") {
  spa::Watch watch;
  const auto alarms = [&](std::int64_t step, bool wrong) {
    watch.look({step, 1000, 50}, wrong, 100);
    return watch.alarms();
  };
  CHECK_FALSE(alarms(20, true));
  CHECK_FALSE(alarms(100, true));  // a tenth of the run
  CHECK_FALSE(alarms(120, true));
  CHECK_FALSE(alarms(200, true));  // for 80 steps
  CHECK(alarms(220, true));
  CHECK_FALSE(alarms(240, false));
  CHECK_FALSE(alarms(260, true));
  CHECK_FALSE(alarms(999, false));
  CHECK(alarms(1000, true));
  // A warm-up longer than the run, and a run that ends nobody knows when.
  spa::Watch other;
  other.look({300, 300, 500}, true, 100);
  CHECK(other.alarms());
  other.look({500, 0, 500}, true, 100);
  CHECK_FALSE(other.alarms());
  other.look({600, 0, 500}, true, 100);
  CHECK_FALSE(other.alarms());
  other.look({700, 0, 500}, true, 100);
  CHECK(other.alarms());
}

TEST_CASE("pruned entries are zero, and get gradients under a dense shadow alone") {
  using Kind = MaskRule::Kind;
  for (const Kind kind : {Kind::concrete, Kind::straight}) {
    const auto [none, no_slope] = mask_of({kind, true, false}, 0.7, 0.5, 0.5, true);
    CHECK(none == 0);
    CHECK(no_slope == 0);
    const auto [shadow, slope] = mask_of({kind, true, true}, 0.7, 0.5, 0.5, true);
    CHECK(shadow == 0);
    CHECK(slope == doctest::Approx(0.118574).epsilon(1e-5));
  }
}
