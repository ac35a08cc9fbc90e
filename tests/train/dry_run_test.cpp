#include "train/dry_run.h"

#include <cmath>

#include <doctest/doctest.h>

#include "core/error.h"
#include "tiny_run.h"

using namespace fovea;
using namespace fovea::train;
using namespace fovea::test;

namespace {

// What a real run takes: three steps, with an evaluation between the second and the third.
MemoryUse measured(const RunConfig& config) {
  Trainer trainer(config, kCpu);
  trainer.step();
  trainer.step();
  trainer.evaluate(Split::validation, 0);
  trainer.step();
  return trainer.memory();
}

constexpr double kTolerance = 0.05;

}  // namespace

TEST_CASE("the predicted peak is within 5 % of the measured one") {
  const std::vector<std::vector<std::string>> configs = {
      {},
      {"train.precision=bf16-mixed", "model.n_embd=64", "model.block_size=64"},
      {"train.precision=fp64", "model.n_layer=3"},
      {"train.recompute=true", "model.n_layer=4", "model.block_size=128",
       "train.micro_batch_size=4"},
      {"train.micro_batch_size=16", "eval.micro_batch_size=24", "model.block_size=128",
       "model.n_embd=64"},
      {"model.norm=rms", "model.mlp=swiglu", "model.position=rope", "model.n_kv_head=1",
       "model.bias=false", "model.tie_embeddings=false", "model.block_size=256",
       "train.micro_batch_size=1", "train.precision=fp16-mixed"},
      {"task=mqar", "data.kind=mqar", "data.mqar.vocab=512", "data.mqar.pairs=4",
       "model.block_size=64", "data.mqar.train_examples=64", "data.mqar.test_examples=10",
       "model.n_embd=64"},
  };
  for (const std::vector<std::string>& overrides : configs) {
    const RunConfig config = tiny_config("unused", overrides);
    const auto predicted = static_cast<double>(dry_run(config).memory.total());
    const auto real = static_cast<double>(measured(config).total());
    CAPTURE(config.resolved.yaml());
    CAPTURE(predicted);
    CAPTURE(real);
    CHECK(std::fabs(predicted / real - 1) < kTolerance);
  }
}

TEST_CASE("a dry run counts the FLOPs that the formulas predict, and computes nothing") {
  const DryRun r = dry_run(tiny_config(
      "unused", {"model.n_embd=128", "model.block_size=128", "train.global_batch_size=4"}));
  CHECK(r.step_flops > 0);
  CHECK(std::fabs(r.step_flops / r.executed_flops - 1) < 0.1);
  CHECK(r.gradient_buffers == 2);  // two micro-batches
  CHECK(r.parameters > 0);
  CHECK(dry_run_json(r).find("\"peak_bytes\":") != std::string::npos);
}

TEST_CASE("a dry run takes no memory of the size it predicts") {
  // 12 layers of width 4,096: some 40 GB of state.
  const RunConfig config =
      tiny_config("unused", {"model.n_layer=12", "model.n_embd=4096", "model.n_head=32"});
  const std::size_t before = persistent_allocator(kCpu).stats().reserved;
  CHECK(dry_run(config).memory.persistent > std::size_t{30} << 30);
  CHECK(persistent_allocator(kCpu).stats().reserved - before < std::size_t{64} << 20);
}

TEST_CASE("a dry run finds errors of the data") {
  CHECK_THROWS_AS(dry_run(tiny_config("unused", {"data.kind=text", "data.path=/no/such/text"})),
                  IoError);
}
