// Twenty optimizer steps against an independent implementation in float64: initial weights from a
// foreign file, data from raw tokens, and everything between the two and the update.

#include <algorithm>
#include <cmath>
#include <string>

#include <doctest/doctest.h>

#include "config/yaml.h"
#include "core/text.h"
#include "models/build.h"
#include "skip.h"
#include "train/import/imported_model.h"
#include "train/import/json_node.h"
#include "train/trainer.h"

using namespace fovea;
using namespace fovea::train;
using fovea::test::test_data;

namespace {

struct Tolerance {
  const char* precision;
  double step;     // of loss and norm, relative
  double weights;  // of the largest entry of a tensor
};
// Those of the golden data's README.
constexpr Tolerance kTolerances[] = {{"fp64", 1e-9, 1e-6}, {"fp32", 2e-5, 2e-4}};

RunConfig config_of(const std::string& folder, const config::Node& golden, const char* precision,
                    std::int64_t micro_batches) {
  const std::int64_t global = golden.get_int("global_batch_size");
  config::Node node = config::parse("data: {kind: tokens, val_fraction: 0}\n", "golden.yaml");
  std::vector<std::string> keys{"train.init_from=" + folder,
                                "data.path=" + folder + "/tokens.bin",
                                cat("train.precision=", precision),
                                cat("train.global_batch_size=", global),
                                cat("train.micro_batch_size=", global / micro_batches),
                                cat("train.max_steps=", golden.get_int("steps")),
                                cat("train.max_norm=", golden.get_number("max_norm")),
                                "train.threads=1",
                                cat("optim.lr=", golden.get_number("sched.lr")),
                                cat("optim.betas=", golden.find("betas")->json()),
                                cat("optim.eps=", golden.get_number("eps")),
                                cat("optim.weight_decay=", golden.get_number("weight_decay"))};
  for (const auto& [key, value] : golden.find("sched")->entries()) {
    if (key != "lr") keys.push_back(cat("sched.", key, "=", value.text()));
  }
  config::override_with(node, keys);
  return RunConfig::from(node);
}

// The largest difference of a parameter, over its largest entry. Where numbers are rounded to f32,
// biases of keys are left out: softmax does not see them, so their gradient is zero but for
// rounding, and AdamW divides that by itself.
double worst_weight(Trainer& trainer, const std::string& file, bool rounded) {
  const ImportedModel final_weights = import_model(file);
  const auto model = models::build(final_weights.config);
  Stream stream(kCpu, 1);
  CachingAllocator activations(memory_source(kCpu));
  Ctx ctx{kCpu, stream, activations};
  optim::ParameterStore store(ctx, *model, optim::StoreMode::evaluate);
  load_weights(final_weights, ctx, *model, store);
  double worst = 0;
  const auto ours = trainer.task().model().parameters(), theirs = model->parameters();
  REQUIRE(ours.size() == theirs.size());
  for (std::size_t i = 0; i < ours.size(); ++i) {
    REQUIRE(ours[i]->path == theirs[i]->path);
    const auto a = ours[i]->master.values(), b = theirs[i]->master.values();
    const bool has_keys = rounded && ours[i]->path.ends_with("attn.qkv.bias");
    double largest = 0, difference = 0;
    for (std::size_t j = 0; j < a.size(); ++j) {
      largest = std::max(largest, std::fabs(b[j]));
      const bool is_key = has_keys && j >= a.size() / 3 && j < a.size() / 3 * 2;
      if (!is_key) difference = std::max(difference, std::fabs(a[j] - b[j]));
    }
    worst = std::max(worst, difference / largest);
  }
  return worst;
}

void check_case(const std::string& name) {
  const std::string folder = test_data("train-golden/" + name);
  if (folder.empty()) FOVEA_SKIP("the train-golden data is not there");
  const config::Node golden = read_json(folder + "/case.json", 1 << 20);
  for (const Tolerance& tolerance : kTolerances) {
    for (const std::int64_t micro_batches : {1, 2, 4, 8}) {
      INFO(name, ", ", tolerance.precision, ", ", micro_batches, " micro-batches");
      Trainer trainer(config_of(folder, golden, tolerance.precision, micro_batches), kCpu);
      trainer.start_from(import_model(folder));
      double worst_loss = 0, worst_norm = 0, worst_lr = 0;
      for (const config::Node& step : golden.find("trajectory")->items()) {
        const StepRecord record = trainer.step();
        const auto off = [&](double ours, const char* key) {
          return std::fabs(ours / step.get_number(key) - 1);
        };
        worst_loss = std::max(worst_loss, off(record.loss, "loss"));
        worst_norm = std::max(worst_norm, off(record.grad_norm, "grad_norm"));
        worst_lr = std::max(worst_lr, off(record.lr, "lr"));
      }
      CHECK(trainer.clock().step == 20);
      CHECK(worst_loss < tolerance.step);
      CHECK(worst_norm < tolerance.step);
      CHECK(worst_lr < 1e-12);
      const bool rounded = std::string_view(tolerance.precision) != "fp64";
      CHECK(worst_weight(trainer, folder + "/final.safetensors", rounded) < tolerance.weights);
    }
  }
}

}  // namespace

TEST_CASE("a GPT-2 trains along the golden trajectory, however its batch is cut") {
  check_case("gpt2_cosine");
}

TEST_CASE("a Llama trains along the golden trajectory, however its batch is cut") {
  check_case("llama_inverse_sqrt");
}
