// Whether a run learns, in every precision, and what it does when numbers go wrong.

#include <cmath>

#include <doctest/doctest.h>

#include "core/error.h"
#include "data/markov.h"
#include "tiny_run.h"
#include "train/evaluate.h"
#include "train/trainer.h"

using namespace fovea;
using namespace fovea::train;
using namespace fovea::test;

namespace {

double value_of(const Report& report, std::string_view name) {
  for (const auto& [key, value] : report) {
    if (key == name) return value;
  }
  return NAN;
}

// One batch only, again and again.
const std::vector<std::string> kOneBatch = {"data.markov.train_examples=4",
                                            "train.global_batch_size=4",
                                            "train.micro_batch_size=2",
                                            "model.dropout=0",
                                            "eval.interval=0",
                                            "optim.lr=1e-2",
                                            "optim.weight_decay=0"};

}  // namespace

TEST_CASE("a model overfits one batch in every precision") {
  for (const char* precision : {"fp64", "fp32", "bf16-mixed", "fp16-mixed"}) {
    std::vector<std::string> overrides = kOneBatch;
    overrides.push_back(std::string("train.precision=") + precision);
    overrides.push_back("train.max_steps=150");
    Trainer trainer(tiny_config("unused", overrides), kCpu);
    double loss = 0;
    for (int i = 0; i < 150; ++i)
      loss = trainer.step().loss;
    CHECK_MESSAGE(loss < 0.1, precision);
  }
}

TEST_CASE("16-bit runs follow the fp32 run at first") {
  // Ten steps, before chaos: 8 bits of mantissa move the loss by less than a hundredth.
  Trainer reference(tiny_config("unused", kOneBatch), kCpu);
  std::vector<double> losses;
  for (int i = 0; i < 10; ++i)
    losses.push_back(reference.step().loss);
  for (const char* precision : {"bf16-mixed", "fp16-mixed"}) {
    std::vector<std::string> overrides = kOneBatch;
    overrides.push_back(std::string("train.precision=") + precision);
    Trainer trainer(tiny_config("unused", overrides), kCpu);
    for (const double expected : losses)
      CHECK(std::fabs(trainer.step().loss / expected - 1) < 0.02);
  }
}

TEST_CASE("a language model approaches the entropy of its text") {
  Trainer trainer(
      tiny_config("unused", {"model.dropout=0", "train.max_steps=120", "optim.lr=1e-2"}), kCpu);
  for (int i = 0; i < 120; ++i)
    trainer.step();
  const double loss = value_of(trainer.evaluate(Split::validation, 0).report, "loss");
  CHECK(loss < 1.15 * data::MarkovSource::entropy());
  CHECK(loss > 0.95 * data::MarkovSource::entropy());
}

TEST_CASE("an evaluation does not depend on the training micro-batch, nor change the run") {
  Trainer a(tiny_config("unused"), kCpu),
      b(tiny_config("unused", {"train.micro_batch_size=16"}), kCpu);
  CHECK(a.evaluate(Split::validation, 0).metrics.loss_sum ==
        b.evaluate(Split::validation, 0).metrics.loss_sum);
  Trainer plain(tiny_config("unused"), kCpu);
  CHECK(a.step().loss == plain.step().loss);
  a.evaluate(Split::validation, 0);
  CHECK(a.step().loss == plain.step().loss);
}

TEST_CASE("the tail of a split is padded and counted once") {
  // 24 examples in batches of 8, or in one of 24 (asked for 17), or with 8 more rows in the last.
  Trainer even(tiny_config("unused"), kCpu),
      odd(tiny_config("unused", {"eval.micro_batch_size=17"}), kCpu),
      padded(tiny_config("unused", {"eval.micro_batch_size=16"}), kCpu);
  const Evaluation a = even.evaluate(Split::validation, 0), b = odd.evaluate(Split::validation, 0),
                   c = padded.evaluate(Split::validation, 0);
  CHECK(a.batches == 3);
  CHECK(b.batches == 1);
  CHECK(c.batches == 2);
  CHECK(c.examples == 24);
  CHECK(a.metrics.targets == c.metrics.targets);
  CHECK(a.metrics.loss_sum == b.metrics.loss_sum);
  CHECK(a.metrics.loss_sum == c.metrics.loss_sum);
}

TEST_CASE("a checkpoint evaluated on its own gives the run's numbers") {
  const TemporaryFolder temporary;
  const std::string path = temporary.path("run");
  const TrainResult result = run_tiny(path);
  CHECK(evaluate(path).metrics == result.metrics);
  const std::vector<std::string> two_threads = {"train.threads=2"};
  CHECK(evaluate(newest(path), two_threads).metrics == result.metrics);
  const std::vector<std::string> fewer = {"eval.max_batches=1"};
  CHECK(evaluate(path, fewer).examples == 8);
  CHECK_THROWS_AS(evaluate(temporary.path("nothing")), CheckpointError);
}

TEST_CASE("a step that is not finite ends the run by name, or is left out") {
  const TemporaryFolder temporary;
  // Each step multiplies the matrices by 1 - lr weight_decay = -10^6: f32 overflows within ten
  // steps.
  const std::vector<std::string> broken = {"optim.lr=1000", "optim.weight_decay=1000",
                                           "sched.warmup_steps=0", "train.max_steps=12",
                                           "eval.interval=0"};
  CHECK_THROWS_WITH_AS(run_tiny(temporary.path("stop"), broken), doctest::Contains("is not finite"),
                       NumericError);
  CHECK(contents(temporary.path("stop") + "/status.json").find("\"status\":\"failed\"") !=
        std::string::npos);
  std::vector<std::string> skip = broken;
  skip.push_back("train.on_nonfinite=skip");
  run_tiny(temporary.path("skip"), skip);
  CHECK(metrics(temporary.path("skip")).find("\"skipped\":2") != std::string::npos);
  skip.push_back("train.max_steps=50");
  CHECK_THROWS_WITH_AS(run_tiny(temporary.path("skip50"), skip), doctest::Contains("for 20 steps"),
                       NumericError);
}

TEST_CASE("fp16 finds its scale by skipping, and the skips are resumed exactly") {
  const TemporaryFolder temporary;
  // Targets few and weights large: the first scales overflow.
  const std::vector<std::string> fp16 = {"train.precision=fp16-mixed", "model.init_std=0.6",
                                         "train.global_batch_size=1", "train.micro_batch_size=1"};
  const std::string straight = temporary.path("straight"), stopped = temporary.path("stopped");
  run_tiny(straight, fp16);
  CHECK(metrics(straight).find("\"skipped\":1") != std::string::npos);
  std::vector<std::string> first = fp16;
  first.push_back("train.max_steps=1");
  run_tiny(stopped, first);
  run_tiny(stopped, fp16);
  CHECK(weights(stopped) == weights(straight));
  CHECK(metrics(stopped) == metrics(straight));
}

TEST_CASE("associative recall reports accuracy at its queries") {
  const TemporaryFolder temporary;
  const TrainResult result =
      run_tiny(temporary.path("run"),
               {"task=mqar", "data.kind=mqar", "data.mqar.vocab=64", "data.mqar.pairs=2",
                "data.mqar.train_examples=64", "data.mqar.test_examples=10", "train.max_steps=2"});
  CHECK(value_of(result.metrics, "targets") == 20);
  const double accuracy = value_of(result.metrics, "accuracy");
  CHECK(accuracy >= 0);
  CHECK(accuracy <= 1);
}
