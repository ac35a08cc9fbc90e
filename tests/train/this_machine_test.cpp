// Settings that this machine cannot have: those of a run are replaced, visibly, and those asked for
// now are refused.

#include "train/this_machine.h"

#include <cstdlib>
#include <filesystem>
#include <string>

#include <doctest/doctest.h>

#include "config/message.h"
#include "core/cuda_runtime.h"
#include "core/error.h"
#include "data/tokenizer/tokenizer.h"
#include "skip.h"
#include "tiny_run.h"
#include "train/dry_run.h"
#include "train/evaluate.h"
#include "train/text_model.h"
#include "train/trainer.h"
#include "train/tuning_table.h"

using namespace fovea;
using namespace fovea::train;
using namespace fovea::test;

namespace {

// FOVEA_DEVICE while it lives; "" is none.
class WishedDevice {
 public:
  explicit WishedDevice(const char* value) { ::setenv("FOVEA_DEVICE", value, 1); }
  ~WishedDevice() { ::setenv("FOVEA_DEVICE", "cpu", 1); }
};

// A run that says it was made on a GPU, with tf32 and a table that is not here.
std::string run_of_a_gpu(const TemporaryFolder& folder) {
  std::string text;
  for (int i = 0; i < 400; ++i)
    text += "line " + std::to_string(i * i % 97) + "\n";
  overwrite(folder.path("text"), text);
  RunConfig config =
      tiny_config(folder.path("run"), {"data.kind=text", "data.path=" + folder.path("text"),
                                       "train.max_steps=2", "eval.interval=0"});
  const config::Place place{.source = "test", .line = 0, .column = 0};
  for (const auto& [key, value] : {std::pair{"train.device", "cuda"},
                                   {"train.precision", "tf32"},
                                   {"train.gemm_table", "/no/such/table.yaml"}}) {
    config.resolved.set(key, config::Node::scalar(value, place));
  }
  train::train(config);
  return folder.path("run");
}

ExitCode code_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& e) {
    return e.code();
  }
  return ExitCode::ok;
}

}  // namespace

TEST_CASE("a model that was trained on a GPU is evaluated, continued from and opened without one") {
  const TemporaryFolder folder;
  const std::string run = run_of_a_gpu(folder);
  const EvaluateResult result = evaluate(run);
  CHECK(result.step == 2);
  CHECK(evaluate(run, std::vector<std::string>{"train.precision=fp32"}).metrics == result.metrics);
  const RunConfig next =
      tiny_config(folder.path("next"),
                  {"train.init_from=" + run, "data.kind=text", "data.path=" + folder.path("text"),
                   "model.vocab_size=256", "train.max_steps=1"});
  CHECK(train::train(next).step == 1);
  const TextModel model(run, "byte", 1, std::nullopt);
  (void)model;
}

TEST_CASE("what is asked for now is not replaced") {
  const TemporaryFolder folder;
  const std::string run = run_of_a_gpu(folder);
  const auto evaluated = [&](std::vector<std::string> with) {
    return code_of([&] { evaluate(run, with); });
  };
  CHECK(evaluated({"train.device=cpu", "train.precision=tf32"}) == ExitCode::usage);
  CHECK(evaluated({"train.gemm_table=/no/such/other.yaml"}) != ExitCode::ok);
  if (cuda::device_count() > 0) FOVEA_SKIP("there is a CUDA device");
  CHECK(evaluated({"train.device=cuda"}) == ExitCode::device);
  CHECK(code_of([&] { TextModel(run, "byte", 1, DeviceChoice::cuda); }) == ExitCode::device);
}

TEST_CASE("a run on a GPU that is not there leaves no folder") {
  if (cuda::device_count() > 0) FOVEA_SKIP("there is a CUDA device");
  const TemporaryFolder folder;
  CHECK(code_of([&] { run_tiny(folder.path("run"), {"train.device=cuda"}); }) == ExitCode::device);
  CHECK(!std::filesystem::exists(folder.path("run")));
}

TEST_CASE("FOVEA_DEVICE is cpu, auto or nothing") {
  for (const char* wrong : {"CPU", "cuda", "gpu", "0"}) {
    const WishedDevice wish(wrong);
    CHECK(message([] { device_of({}); }) ==
          std::string("the environment variable FOVEA_DEVICE is '") + wrong +
              "', but must be cpu or auto");
  }
  for (const char* right : {"cpu", "auto", ""}) {
    const WishedDevice wish(right);
    CHECK_NOTHROW(device_of({}));
  }
}

TEST_CASE("a dry run reads the tuning table and needs no GPU for it") {
  const TemporaryFolder folder;
  const std::string path = folder.path("table.yaml");
  overwrite(path, tuning_yaml({"NVIDIA H200", "13.1.0", {}}));
  CHECK(dry_run(tiny_config("unused", {"train.gemm_table=" + path})).parameters > 0);
  overwrite(path, "gpu: A\n");
  CHECK(code_of([&] { dry_run(tiny_config("unused", {"train.gemm_table=" + path})); }) ==
        ExitCode::usage);
}

TEST_CASE("on the CPU a tuning table changes nothing") {
  const TemporaryFolder folder;
  const std::string path = folder.path("table.yaml");
  overwrite(path, tuning_yaml({"NVIDIA H200", "13.1.0", {}}));
  Trainer plain(tiny_config("unused"), kCpu),
      tuned(tiny_config("unused", {"train.gemm_table=" + path}), kCpu);
  CHECK(plain.step().loss == tuned.step().loss);
}

TEST_CASE("heads that are too wide for a GPU's tiles are refused where tiles must be") {
  const auto config = [](const char* kernel) {
    return [kernel] {
      tiny_config("unused",
                  {std::string("model.attention={kind: standard, kernel: ") + kernel + "}",
                   "model.head_dim=320", "train.device=cuda"});
    };
  };
  CHECK(message(config("tiled!")).find("use materialised, or auto") != std::string::npos);
  CHECK(code_of(config("tiled")) == ExitCode::ok);
  CHECK(code_of(config("auto")) == ExitCode::ok);
}
