// Training on a GPU: the same numbers as on the CPU, the same bits with and without graphs and
// after a resume. Skipped, visibly, without one.

#include <cmath>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "core/cuda_runtime.h"
#include "core/error.h"
#include "kernels/basic.h"
#include "kernels/bias.h"
#include "skip.h"
#include "tiny_run.h"
#include "train/trainer.h"

using namespace fovea;
using namespace fovea::test;
using train::StepRecord;
using train::Trainer;

namespace {

using Overrides = std::vector<std::string>;

constexpr Device kGpu{Device::Kind::cuda, 0};

Overrides with(Overrides all, const Overrides& more) {
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

std::vector<double> losses(Device device, int steps, const Overrides& overrides) {
  const TemporaryFolder folder;
  Trainer trainer(tiny_config(folder.path(), overrides), device);
  std::vector<double> out;
  for (int step = 0; step < steps; ++step)
    out.push_back(trainer.step().loss);
  return out;
}

}  // namespace

TEST_CASE("on a GPU the losses of f32 training are those of the CPU") {
  if (cuda::device_count() == 0) FOVEA_SKIP(cuda::why_none().c_str());
  for (const Overrides& model :
       {Overrides{}, Overrides{"model.norm=rms", "model.mlp=swiglu", "model.position=rope",
                               "model.bias=false"}}) {
    const std::vector<double> cpu = losses(kCpu, 10, model), gpu = losses(kGpu, 10, model);
    for (std::size_t i = 0; i < cpu.size(); ++i)
      CHECK(std::fabs(gpu[i] / cpu[i] - 1) < 1e-4);
  }
}

TEST_CASE("a captured step has the bits of an eager one") {
  if (cuda::device_count() == 0) FOVEA_SKIP(cuda::why_none().c_str());
  for (const char* precision : {"fp32", "tf32", "bf16-mixed", "fp16-mixed"}) {
    CAPTURE(precision);
    const Overrides own{"train.device=cuda", std::string("train.precision=") + precision};
    const TemporaryFolder folder;
    Trainer captured(tiny_config(folder.path(), own), kGpu);
    std::vector<double> with_graphs;
    for (int step = 0; step < 12; ++step)
      with_graphs.push_back(captured.step().loss);
    CHECK(with_graphs == losses(kGpu, 12, with(own, {"train.cuda_graphs=false"})));
    for (const train::StepGraph* graph : {&captured.micro_graph(), &captured.update_graph()}) {
      CHECK(graph->refused() == "");
      CHECK(graph->replays() > 0);
    }
  }
  const TemporaryFolder folder;
  Trainer trainer(tiny_config(folder.path(), {"train.micro_batch_size=16"}), kGpu);
  for (int step = 0; step < 8; ++step)
    trainer.step();
  CHECK(trainer.micro_graph().refused().empty());
  CHECK(trainer.micro_graph().replays() == 5);
  CHECK(trainer.update_graph().replays() == 5);
}

TEST_CASE("advance returns every step's record once, in order") {
  if (cuda::device_count() == 0) FOVEA_SKIP(cuda::why_none().c_str());
  const TemporaryFolder folder;
  Trainer trainer(tiny_config(folder.path()), kGpu);
  std::vector<std::int64_t> steps;
  for (int step = 0; step < 6; ++step) {
    if (const auto record = trainer.advance()) steps.push_back(record->step);
  }
  if (const auto record = trainer.flush()) steps.push_back(record->step);
  CHECK(!trainer.flush().has_value());
  CHECK(steps == std::vector<std::int64_t>{1, 2, 3, 4, 5, 6});
}

TEST_CASE("a run on a GPU that was stopped and resumed ends in the same bytes") {
  if (cuda::device_count() == 0) FOVEA_SKIP(cuda::why_none().c_str());
  const Overrides gpu{"train.device=cuda", "train.precision=bf16-mixed"};
  const TemporaryFolder whole, parts;
  run_tiny(whole.path(), gpu);
  run_tiny(parts.path(), with(gpu, {"train.max_steps=7", "train.cuda_graphs=false"}));
  run_tiny(parts.path(), gpu);
  CHECK(weights(parts.path()) == weights(whole.path()));
  CHECK(metrics(parts.path()) == metrics(whole.path()));
}

TEST_CASE("memory that a GPU does not have is reported, not crashed on") {
  if (cuda::device_count() == 0) FOVEA_SKIP(cuda::why_none().c_str());
  CachingAllocator memory(memory_source(kGpu, std::size_t{1} << 20));
  try {
    memory.take(std::size_t{1} << 30, "attention");
    FAIL("a GiB was taken of a MiB");
  } catch (const OutOfMemory& e) {
    CHECK(std::string(e.what()).find("\"attention\" on cuda") != std::string::npos);
  }
}

TEST_CASE("an evaluation with a longer context between captured steps changes no bit of them") {
  if (cuda::device_count() == 0) FOVEA_SKIP(cuda::why_none().c_str());
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 4000; ++i)
    text += "line " + std::to_string(i * i % 97) + "\n";
  overwrite(folder.path("text"), text);
  for (const char* position : {"sinusoidal", "rope"}) {
    CAPTURE(position);
    const Overrides own{"data.kind=text", "data.path=" + folder.path("text"),
                        std::string("model.position=") + position, "eval.context=512",
                        "eval.micro_batch_size=64"};
    const auto run = [&](const Overrides& more) {
      Trainer trainer(tiny_config(folder.path("run"), with(own, more)), kGpu);
      std::vector<double> out;
      std::vector<Tensor> junk;
      for (int step = 0; step < 12; ++step) {
        out.push_back(trainer.step().loss);
        if (step != 6) continue;
        CHECK((trainer.micro_graph().replays() > 0) == more.empty());
        trainer.evaluate(train::Split::validation, 2);
        // Whatever of a position table's size was given back is written over.
        for (int i = 0; i < 64; ++i) {
          junk.push_back(Tensor::empty({16, 32}, DType::f32, kGpu));
          FOVEA_ON(kGpu, fill(trainer.stream().ref(), junk.back().view(), 1e30));
        }
      }
      return out;
    };
    CHECK(run({}) == run({"train.cuda_graphs=false"}));
  }
}

TEST_CASE("a captured step is made anew when the stream's scratch memory moves") {
  if (cuda::device_count() == 0) FOVEA_SKIP(cuda::why_none().c_str());
  const Overrides own{"train.micro_batch_size=16"};  // a graph a step
  const TemporaryFolder folder;
  Trainer trainer(tiny_config(folder.path(), own), kGpu);
  std::vector<double> captured;
  constexpr std::int64_t kWide = std::int64_t{1} << 22;
  for (int step = 0; step < 12; ++step) {
    captured.push_back(trainer.step().loss);
    if (step != 5) continue;
    REQUIRE(trainer.micro_graph().replays() == 3);
    const std::uint64_t before = trainer.stream().generation();
    const Tensor x = Tensor::empty({1, kWide}, DType::f32, kGpu),
                 sum = Tensor::empty({kWide}, DType::f32, kGpu);
    FOVEA_ON(kGpu, fill(trainer.stream().ref(), x.view(), 1.0));
    FOVEA_ON(kGpu, fill(trainer.stream().ref(), sum.view(), 0.0));
    FOVEA_ON(kGpu, column_sum(trainer.stream().ref(), sum.view(), x.view()));
    CHECK(trainer.stream().generation() > before);
  }
  CHECK(trainer.micro_graph().replays() == 3 + 3);  // and three steps before another capture
  CHECK(captured == losses(kGpu, 12, with(own, {"train.cuda_graphs=false"})));
}

TEST_CASE("heads wider than a GPU's tiles train there as on the CPU") {
  if (cuda::device_count() == 0) FOVEA_SKIP(cuda::why_none().c_str());
  const Overrides wide{"model.head_dim=264"};
  const std::vector<double> cpu = losses(kCpu, 3, wide), gpu = losses(kGpu, 3, wide);
  for (std::size_t i = 0; i < cpu.size(); ++i)
    CHECK(std::fabs(gpu[i] / cpu[i] - 1) < 1e-4);
}

TEST_CASE("with every causal method a captured step has the bits of an eager one, or is refused") {
  if (cuda::device_count() == 0) FOVEA_SKIP(cuda::why_none().c_str());
  for (const char* method :
       {"standard", "{kind: short, dim: 4}", "{kind: sparse_transformer, block: 4, columns: 2}",
        "{kind: longformer, window: 4}", "{kind: bigbird, block: 4}", "performer", "linear",
        "cosformer", "rfa", "{kind: linformer, causal_mode: block, block: 4, block_rank: 2}",
        "{kind: reformer, bucket_size: 4}", "{kind: scatterbrain, window: 4}",
        "{kind: spa, proj_dim: 4}", "{kind: spa, proj_dim: 4, pattern: learn}"}) {
    CAPTURE(method);
    const Overrides own{std::string("model.attention=") + method, "train.max_steps=40"};
    const TemporaryFolder folder;
    Trainer captured(tiny_config(folder.path(), own), kGpu);
    std::vector<double> with_graphs;
    for (int step = 0; step < 10; ++step)
      with_graphs.push_back(captured.step().loss);
    CHECK(with_graphs == losses(kGpu, 10, with(own, {"train.cuda_graphs=false"})));
    // Orders of tokens that are found anew in every step come from the host with their rules.
    const bool replays = std::string(method).find("reformer") == std::string::npos;
    CHECK((captured.micro_graph().replays() > 0) == replays);
    CHECK(captured.micro_graph().refused().empty() == replays);
  }
}
