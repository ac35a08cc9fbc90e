#include "train/evaluate.h"

#include <optional>

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

constexpr const char* kCommand = "fovea eval";

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

// A batch is the least that a process can do.
void say_shares(std::int64_t batches, const Ranks& ranks) {
  if (ranks.size() == 1 || !ranks.is_first()) return;
  log::info(cat(ranks.size(), " processes share ", batches, batches == 1 ? " batch" : " batches"));
  if (batches >= ranks.size()) return;
  log::warn(cat(ranks.size() - batches, " of the ", ranks.size(), " processes have nothing to do: ",
                batches, batches == 1 ? " is as fast" : " are as fast"));
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
  Evaluator evaluator(*task, split, config.eval.max_batches);
  say_shares(evaluator.batches(), ranks);
  const Evaluation result = evaluator.run(ctx, each ? &losses : nullptr, ranks);
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
  std::optional<ReplacedFile> file;
  std::optional<EvaluatedModel> found;
  Device device;
  try {
    // An evaluation may take hours: what cannot be written is to be known before.
    if (!options.losses.empty() && world.rank == 0) file.emplace(options.losses);
    found.emplace(evaluated_model(run_or_checkpoint, overrides));
    device = device_of(found->config.train, world.local_rank);
  } catch (const Error& e) {
    decline_ranks(world, found ? found->config.out_dir : std::string(), kCommand, e);
    throw;
  }
  const EvaluatedModel& model = *found;
  const auto yes_or_no = [](bool yes) { return std::string(yes ? "yes" : "no"); };
  const Ranks ranks = join_for_messages(
      world, model.config, kCommand,
      {{"the checkpoint's step", model.checkpoint ? cat(model.checkpoint->state().step) : "none"},
       {"--losses", yes_or_no(!options.losses.empty())},
       {"--per-document", yes_or_no(options.per_document)}});
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
