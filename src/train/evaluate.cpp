#include "train/evaluate.h"

#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "dist/world.h"
#include "optim/parameter_store.h"
#include "train/evaluate_config.h"
#include "train/import/imported_model.h"
#include "train/ranks.h"
#include "train/this_machine.h"
#include "train/trainer.h"

namespace fovea::train {

namespace {

// Everything about a text but the loss itself. `file`: of the losses, if they are to be written.
TextEvaluation describe(Task& task, const data::EvalSource& source, const Ctx& ctx,
                        const RunConfig& config, const Evaluation& result,
                        const std::vector<double>& losses, bool per_document,
                        std::optional<ReplacedFile>& file) {
  TextEvaluation out = text_evaluation(result, source, config.eval);
  if (per_document) out.per_document = document_scores(source, result.examples, losses);
  if (config.eval.random_batches > 0) {
    out.random = random_estimate(task, source, ctx, config.eval.random_batches,
                                 config.eval.micro_batch_size);
  }
  if (file) {
    write_losses(*file, source, result.examples, losses,
                 config.train.precision == Precision::fp64 ? DType::f64 : DType::f32);
  }
  return out;
}

EvaluateResult evaluate_as(const Ranks& ranks, Device device, const EvaluatedModel& model,
                           const std::string& run_or_checkpoint, const EvaluateOptions& options,
                           std::optional<ReplacedFile>& file) {
  const RunConfig& config = model.config;
  Stream stream(device, threads_of(config.train, ranks.local_size));
  prepare_products(stream, config.train);
  CachingAllocator activations(memory_source(device));
  Ctx ctx{device, stream, activations};
  ctx.precision = config.train.precision;
  ctx.seed = config.seed;
  ctx.fuse = config.fuse;
  const std::unique_ptr<Task> task = make_task(config);
  const Split split = config.eval.split;
  const data::EvalSource* const source = task->text_of(split);
  const bool each = !options.losses.empty() || options.per_document;
  if (source == nullptr && each) {
    throw ConfigError(
        cat("--losses and --per-document are for language models of texts and tokens, but "
            "data.kind is ",
            config.data.kind));
  }

  optim::ParameterStore store(ctx, task->model(), optim::StoreMode::evaluate);
  if (model.checkpoint) {
    model.checkpoint->load_model(ctx, task->model(), store);
  } else {
    load_weights(import_model(run_or_checkpoint), ctx, task->model(), store);
  }
  std::vector<double> losses;
  const Evaluation result =
      Evaluator(*task, split, config.eval.max_batches).run(ctx, each ? &losses : nullptr, ranks);
  EvaluateResult out{model.checkpoint ? model.checkpoint->path() : run_or_checkpoint,
                     model.checkpoint ? model.checkpoint->state().step : 0,
                     name_of(split),
                     result.examples,
                     result.report,
                     {},
                     ranks.is_first()};
  if (source != nullptr && ranks.is_first()) {
    out.text = describe(*task, *source, ctx, config, result, losses, options.per_document, file);
    out.split = out.text->split;
  }
  return out;
}

}  // namespace

EvaluateResult evaluate(const std::string& run_or_checkpoint,
                        std::span<const std::string> overrides, const EvaluateOptions& options) {
  const dist::World world = dist::world_from_environment();
  if (world.rank > 0) log::console(false);
  // An evaluation may take hours: what cannot be written is to be known before.
  std::optional<ReplacedFile> file;
  if (!options.losses.empty() && world.rank == 0) file.emplace(options.losses);
  const EvaluatedModel model = evaluated_model(run_or_checkpoint, overrides);
  const Device device = device_of(model.config.train, world.local_rank);
  const Ranks ranks = join_ranks(world, device, model.config, {});
  try {
    EvaluateResult out = evaluate_as(ranks, device, model, run_or_checkpoint, options, file);
    ranks.session->leave();
    return out;
  } catch (const Error& e) {
    ranks.session->fail(e.code(), e.what());
    throw;
  }
}

}  // namespace fovea::train
