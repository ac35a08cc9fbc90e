// Evaluating a checkpoint on its own: the verb `eval`.

#include <filesystem>
#include <optional>

#include "config/yaml.h"
#include "core/text.h"
#include "optim/parameter_store.h"
#include "train/checkpoint.h"
#include "train/evaluator.h"
#include "train/import/imported_model.h"
#include "train/resume.h"
#include "train/run_config.h"
#include "train/trainer.h"

namespace fovea::train {

namespace {

// A model of another program has no configuration: its sizes are its own, its tokenizer lies beside
// it, and the rest is as given.
config::Node foreign_config(const std::string& path, std::span<const std::string> overrides) {
  const config::Place place{.source = path, .line = 0, .column = 0};
  config::Node node = config::Node::map({}, place);
  node.set("train.init_from", config::Node::scalar(path, place, true));
  node.set("train.max_steps", config::Node::scalar("1", place));
  config::override_with(node, overrides);
  const config::Node* kind = node.find("data.kind");
  const bool text = kind == nullptr || kind->is_null() || kind->text() == "text";
  if (text && node.find("data.tokenizer") == nullptr) {
    const std::filesystem::path model(path);
    const std::string folder =
        std::filesystem::is_directory(model) ? path : (model.parent_path() / ".").string();
    node.set("data.tokenizer", config::Node::scalar(folder, place, true));
  }
  return node;
}

}  // namespace

EvaluateResult evaluate(const std::string& run_or_checkpoint,
                        std::span<const std::string> overrides, Split split) {
  std::optional<Checkpoint> checkpoint;
  config::Node node;
  if (is_foreign_model(run_or_checkpoint)) {
    node = foreign_config(run_or_checkpoint, overrides);
  } else {
    checkpoint = find_checkpoint(run_or_checkpoint);
    node = config::parse(checkpoint->state().config_yaml, cat(checkpoint->path(), "/state.json"));
    config::override_with(node, overrides);
  }
  const RunConfig config = RunConfig::from(node);

  const Device device = device_of(config.train);
  Stream stream(device, threads_of(config.train));
  CachingAllocator activations(memory_source(device));
  Ctx ctx{device, stream, activations};
  ctx.precision = config.train.precision;
  ctx.seed = config.seed;
  ctx.fuse = config.fuse;
  const std::unique_ptr<Task> task = make_task(config);
  optim::ParameterStore store(ctx, task->model(), optim::StoreMode::evaluate);
  if (checkpoint) {
    checkpoint->load_model(ctx, task->model(), store);
  } else {
    load_weights(import_model(run_or_checkpoint), ctx, task->model(), store);
  }
  Evaluation result = Evaluator(*task, split, config.eval.max_batches).run(ctx);
  return {checkpoint ? checkpoint->path() : run_or_checkpoint,
          checkpoint ? checkpoint->state().step : 0, name_of(split), result.examples,
          std::move(result.report)};
}

}  // namespace fovea::train
