// Evaluating a checkpoint on its own: the verb `eval`.

#include "config/yaml.h"
#include "core/text.h"
#include "optim/parameter_store.h"
#include "train/checkpoint.h"
#include "train/evaluator.h"
#include "train/resume.h"
#include "train/run_config.h"
#include "train/trainer.h"

namespace fovea::train {

EvaluateResult evaluate(const std::string& run_or_checkpoint,
                        std::span<const std::string> overrides, Split split) {
  const Checkpoint checkpoint = find_checkpoint(run_or_checkpoint);
  config::Node node =
      config::parse(checkpoint.state().config_yaml, cat(checkpoint.path(), "/state.json"));
  config::override_with(node, overrides);
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
  checkpoint.load_model(ctx, task->model(), store);
  Evaluation result = Evaluator(*task, split, config.eval.max_batches).run(ctx);
  return {checkpoint.path(), checkpoint.state().step, name_of(split), result.examples,
          std::move(result.report)};
}

}  // namespace fovea::train
