// Learned SPA in training: pruning beside the optimizer, resuming, and how it is reported.

#include <cmath>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "core/error.h"
#include "core/text.h"
#include "tiny_run.h"
#include "train/trainer.h"

using namespace fovea;
using namespace fovea::train;
using namespace fovea::test;

namespace {

using Values = std::vector<double>;
using Words = std::vector<std::string>;

// Heads are 16 wide: 16 x 8 entries of S in each of two layers.
Words learned(const std::string& more = "", int t0 = 2, int t1 = 8) {
  return {cat("model.attention={kind: spa, pattern: learn, proj_dim: 8, t0: ", t0, ", t1: ", t1,
              ", prune_every: 2", more.empty() ? "" : ", ", more, "}")};
}

struct Training {
  TemporaryFolder temporary;
  Trainer trainer;
  explicit Training(const Words& overrides)
      : trainer(tiny_config(temporary.path("run"), overrides), kCpu) {}
  Values parameter(const std::string& path) {
    for (nn::Parameter* p : trainer.task().model().parameters()) {
      if (p->path == path) return p->master.values();
    }
    throw ConfigError("no parameter " + path);
  }
  Values buffer(const std::string& path) {
    for (nn::Buffer* b : trainer.task().model().buffers()) {
      if (b->path == path) return b->value.values();
    }
    throw ConfigError("no buffer " + path);
  }
  // Moments of a parameter, first and second.
  std::pair<Values, Values> moments(const std::string& path) {
    for (const optim::Segment& s : trainer.store().segments()) {
      if (s.parameter->path != path) continue;
      const auto part = [&](const Tensor& flat) {
        return flat.slice(0, s.begin, s.begin + s.size).values();
      };
      return {part(trainer.store().first_moment()), part(trainer.store().second_moment())};
    }
    throw ConfigError("no segment " + path);
  }
};

const std::string kG = "blocks.1.attn.method.G", kW = "blocks.1.attn.method.W",
                  kM = "blocks.1.attn.method.M", kS = "blocks.1.attn.method.dS";

double active(const Values& m) {
  double sum = 0;
  for (const double x : m)
    sum += x;
  return sum;
}

// 1 - rho_t of t0 = 2, t1 = 8.
double kept(int step) {
  if (step <= 2) return 128;
  const double left = step >= 8 ? 0 : 1 - (step - 2) / 6.0;
  return std::floor(128 * (1 - 0.8 * (1 - left * left * left)) + 0.5);
}

}  // namespace

TEST_CASE("pruning leaves exactly the entries of the schedule, whatever learns and regrows") {
  for (const char* more :
       {"", "learn_mode: magnitude", "learn_mode: hard_concrete", "dense_shadow: false",
        "learn_mode: magnitude, dense_shadow: false, regrow: grad",
        "learn_mode: concrete, dense_shadow: false, regrow: random", "regrow: grad"}) {
    CAPTURE(more);
    Training run(learned(more));
    for (int step = 1; step <= 12; ++step) {
      run.trainer.step();
      CHECK(active(run.buffer(kM)) == kept(step / 2 * 2));
    }
  }
}

TEST_CASE(
    "without a dense shadow pruned weights and their moments are zero, regrown ones start so") {
  Training run(
      learned("learn_mode: magnitude, dense_shadow: false, regrow: grad, regrow_fraction: 1"));
  Values before;
  for (int step = 1; step <= 6; ++step) {
    before = run.buffer(kM);
    run.trainer.step();
  }
  const Values m = run.buffer(kM), w = run.parameter(kW);
  const auto [first, second] = run.moments(kW);
  int grown = 0;
  for (std::size_t i = 0; i < m.size(); ++i) {
    const bool fresh = m[i] == 1 && before[i] == 0;
    grown += fresh ? 1 : 0;
    if (m[i] == 1 && !fresh) continue;
    CHECK(w[i] == 0);
    CHECK(first[i] == 0);
    CHECK(second[i] == 0);
  }
  CHECK(grown > 0);
  run.trainer.step();  // no pruning in step 7: what is inactive stays at zero
  for (std::size_t i = 0; i < m.size(); ++i) {
    if (m[i] == 0) CHECK(run.parameter(kW)[i] == 0);
  }
}

TEST_CASE("under a dense shadow pruned weights go on learning") {
  Training run(learned("learn_mode: magnitude"));
  for (int step = 1; step <= 8; ++step)
    run.trainer.step();
  const Values m = run.buffer(kM), w = run.parameter(kW);
  run.trainer.step();
  const Values later = run.parameter(kW);
  for (std::size_t i = 0; i < m.size(); ++i) {
    if (m[i] == 0) CHECK(later[i] != w[i]);
  }
}

TEST_CASE("the tally of dS is the gradient of a dense S, and no part of the norm") {
  const std::string pruning = "learn_mode: magnitude, lambda0: 0";
  Training with(learned(pruning + ", regrow: grad", 100, 200)), without(learned(pruning, 100, 200));
  const StepRecord a = with.trainer.step(), b = without.trainer.step();
  CHECK(a.grad_norm == b.grad_norm);
  CHECK(a.loss == b.loss);
  CHECK(with.parameter(kW) == without.parameter(kW));
  // Nothing is pruned: dS is W's gradient, of which Adam's first moment has a tenth.
  const Values tally = with.parameter(kS), first = with.moments(kW).first;
  double ratio = 0;
  for (std::size_t i = 0; i < tally.size(); ++i) {
    REQUIRE(tally[i] != 0);
    if (i == 0) ratio = first[0] / tally[0];
    CHECK(first[i] / tally[i] == doctest::Approx(ratio).epsilon(1e-4));
  }
}

TEST_CASE("a run with a learned S goes on from a checkpoint to the same bytes, and not longer") {
  const TemporaryFolder temporary;
  const std::string path = temporary.path("run");
  Words options = learned("learn_mode: concrete_st, dense_shadow: false, regrow: grad");
  options.push_back("ckpt.keep_last=9");
  run_tiny(path, options);
  const std::string end = weights(path), lines = metrics(path);
  Words again = options;
  again.push_back("train.resume=" + path + "/ckpt/step_00000005");
  run_tiny(path, again);
  CHECK(weights(path) == end);
  CHECK(metrics(path) == lines);
  Words threads = options;
  threads.push_back("train.threads=2");
  threads.push_back("train.recompute=true");
  run_tiny(temporary.path("threads"), threads);
  CHECK(weights(temporary.path("threads")) == end);
  Words longer = options;
  longer.push_back("train.max_steps=20");
  CHECK_THROWS_AS(run_tiny(path, longer), ConfigError);
}

TEST_CASE("optim.lr_scale multiplies the first step of its group and of nothing else") {
  Words faster = learned();
  faster.push_back("optim.lr_scale={'*.method.G': 30}");
  Training plain(learned()), scaled(faster);
  const Values start = plain.parameter(kG);
  REQUIRE(scaled.parameter(kG) == start);
  plain.trainer.step();
  scaled.trainer.step();
  const Values one = plain.parameter(kG), thirty = scaled.parameter(kG);
  for (std::size_t i = 0; i < start.size(); ++i) {
    REQUIRE(one[i] != start[i]);
    CHECK((thirty[i] - start[i]) / (one[i] - start[i]) == doctest::Approx(30).epsilon(0.01));
  }
  for (const nn::Parameter* p : plain.trainer.task().model().parameters()) {
    CAPTURE(p->path);
    CHECK((scaled.parameter(p->path) == p->master.values()) == !p->path.ends_with(".method.G"));
  }
}

TEST_CASE(
    "a run with optim.lr_scale goes on from a checkpoint to the same bytes, and with no other") {
  const TemporaryFolder temporary;
  const std::string path = temporary.path("run");
  Words options = learned();
  options.insert(options.end(), {"ckpt.keep_last=9", "optim.lr_scale={'*.method.G': 30}"});
  run_tiny(path, options);
  const std::string end = weights(path), lines = metrics(path);
  Words again = options;
  again.push_back("train.resume=" + path + "/ckpt/step_00000005");
  run_tiny(path, again);
  CHECK(weights(path) == end);
  CHECK(metrics(path) == lines);
  run_tiny(temporary.path("plain"), learned());
  CHECK(weights(temporary.path("plain")) != end);
  Words ones = learned();
  ones.push_back("optim.lr_scale={'*': 1}");
  run_tiny(temporary.path("ones"), ones);
  CHECK(weights(temporary.path("ones")) == weights(temporary.path("plain")));
  Words other = options;
  other.back() = "optim.lr_scale={'*.method.G': 10}";
  CHECK_THROWS_AS(run_tiny(path, other), ConfigError);
}

TEST_CASE("optim.lr_scale refuses a factor that is none, and a glob that matches nothing") {
  for (const char* factor : {"0", "-1", ".inf", "1e10", "1e-10", "fast"}) {
    CAPTURE(factor);
    CHECK_THROWS_AS(tiny_config("run", {cat("optim.lr_scale={'*.bias': ", factor, "}")}),
                    ConfigError);
  }
  CHECK_THROWS_WITH_AS(Training({"optim.lr_scale={'*.method.G': 30}"}),
                       doctest::Contains("optim.lr_scale: '*.method.G' matches no parameter"),
                       ConfigError);
}

TEST_CASE("S's health stands in metrics.jsonl at the steps that looked at it") {
  const TemporaryFolder temporary;
  const std::string path = temporary.path("run");
  run_tiny(path, learned());
  const std::string lines = metrics(path);
  const std::string head = "{\"step\":12,\"blocks.0.attn.method.density\":";
  CHECK(lines.find(head) != std::string::npos);
  for (const char* name : {"entropy", "dead_rows", "dead_columns", "norm", "frozen"})
    CHECK(lines.find(cat("blocks.1.attn.method.", name)) != std::string::npos);
  CHECK(lines.find("{\"step\":11,\"blocks") == std::string::npos);
}

TEST_CASE("S's health is looked at when training ends, however short it was") {
  Training run({"model.attention={kind: spa, pattern: learn, proj_dim: 8, prune_every: 0}",
                "train.max_steps=7", "train.global_batch_size=2"});
  for (int step = 1; step <= 7; ++step)
    CHECK(run.trainer.step().measures.empty() == (step < 7));
}

TEST_CASE("a fixed S is drawn once, saved, and taken from a checkpoint as it is") {
  const TemporaryFolder temporary;
  const std::string path = temporary.path("run"), other = temporary.path("other");
  const Words fixed = {"model.attention={kind: spa, proj_dim: 8}"};
  Training fresh(fixed);
  const std::string name = "blocks.1.attn.method.S";
  CHECK(active(fresh.buffer(name)) == 0);
  fresh.trainer.step();
  const Values drawn = fresh.buffer(name);
  double squares = 0;
  for (const double x : drawn)
    squares += x * x;
  CHECK(squares == doctest::Approx(16));
  CHECK(fresh.buffer("blocks.0.attn.method.S") != drawn);  // each layer its own
  run_tiny(path, fixed);
  Words more = fixed;
  more.push_back("train.init_from=" + newest(path));
  more.push_back("seed=8");
  Training from(more);
  from.trainer.start_from(import_model(newest(path)));
  from.trainer.step();
  CHECK(from.buffer(name) == drawn);
  Words another = fixed;
  another.push_back("seed=8");
  Training seed(another);
  seed.trainer.step();
  CHECK(seed.buffer(name) != drawn);
}

namespace {

struct Ended {
  Values densities;
  std::string log;
};

Ended ended(const std::string& options, const Words& more) {
  const TemporaryFolder temporary;
  const std::string path = temporary.path("run");
  Words overrides = {cat("model.attention={kind: spa, pattern: learn, proj_dim: 8, ", options, "}"),
                     "train.global_batch_size=2", "eval.interval=0", "ckpt.interval=0"};
  overrides.insert(overrides.end(), more.begin(), more.end());
  run_tiny(path, overrides);
  Ended out;
  const std::string lines = metrics(path), key = ".density\":";
  for (std::size_t at = lines.rfind("blocks.0.attn.method.density");
       (at = lines.find(key, at)) != std::string::npos;)
    out.densities.push_back(std::stod(lines.substr(at += key.size())));
  out.log = contents(path + "/logs/rank_0000.log");
  return out;
}

}  // namespace

// Attention has next to nothing to learn here, so that any penalty wins: Adam makes its steps as
// large as its others.
TEST_CASE("without a penalty S has the density of the schedule; under a large one it collapses") {
  const Ended healthy = ended("lambda0: 0", {"train.max_steps=100"});
  CHECK(healthy.densities == Values{26.0 / 128, 26.0 / 128});
  CHECK(healthy.log.find("collapsed") == std::string::npos);
  for (const char* steps : {"train.max_steps=100", "train.max_steps=300"}) {
    CAPTURE(steps);
    const Ended collapsed = ended("lambda0: 1e-3", {steps});
    REQUIRE(collapsed.densities.size() == 2);
    for (const double density : collapsed.densities)
      CHECK(density < 0.1);  // half of the 0.2 that are due
    for (const char* layer : {"0", "1"})
      CHECK(collapsed.log.find(cat("blocks.", layer, ".attn.method at step ")) !=
            std::string::npos);
    CHECK(collapsed.log.find("S has collapsed") != std::string::npos);
    CHECK(collapsed.log.find("lower model.attention.lambda0 (0.001)") != std::string::npos);
  }
}

TEST_CASE("a run of unknown length is checked before it starts") {
  const TemporaryFolder temporary;
  const auto checked = [&](const std::string& more) -> std::string {
    try {
      tiny_config(temporary.path("run"),
                  {cat("model.attention={kind: spa, pattern: learn, ", more, "}"),
                   "train.max_steps=0", "train.max_time=1m"});
    } catch (const ConfigError& error) {
      return error.what();
    }
    return {};
  };
  CHECK(checked("proj_dim: 8").find("takes tau_steps (or tau), t1 and") != std::string::npos);
  CHECK(checked("learn_mode: magnitude, t1: 10").empty());
}
