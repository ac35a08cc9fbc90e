// Runs, their checkpoints and configurations. See inspect_kinds.h.

#include <optional>

#include "config/yaml.h"
#include "core/error.h"
#include "core/text.h"
#include "data/quote.h"
#include "data/safetensors.h"
#include "train/checkpoint.h"
#include "train/checkpoint_tokenizer.h"
#include "train/inspect_kinds.h"
#include "train/json_text.h"
#include "train/run_config.h"
#include "train/run_folder.h"
#include "train/run_status.h"

namespace fovea::train {

namespace {

std::int64_t parameters_in(const std::string& checkpoint) {
  std::int64_t elements = 0;
  const data::SafetensorsFile file(cat(checkpoint, "/model.safetensors"));
  for (const data::SafetensorsEntry& entry : file.entries()) {
    std::int64_t n = 1;
    for (const std::int64_t size : entry.shape)
      n *= size;
    elements += n;
  }
  return elements;
}

}  // namespace

Inspection inspect_checkpoint(const std::string& path) {
  const Checkpoint checkpoint(path);
  const RunState& state = checkpoint.state();
  const RunConfig config =
      RunConfig::of_checkpoint(config::parse(state.config_yaml, cat(path, "/state.json")));
  const std::int64_t elements = parameters_in(path);
  JsonObject json;
  json.add("kind", "checkpoint")
      .add("path", path)
      .add("step", state.step)
      .add("tokens", state.tokens);
  json.add("task", config.task)
      .add("parameters", elements)
      .add("precision", state.arithmetic.precision);
  json.add("isa", state.arithmetic.isa)
      .add("blas_core", state.arithmetic.blas_core)
      .add("version", state.version);
  if (state.best.any) json.add("best", state.best.value).add("best_step", state.best.step);
  const std::string tokenizer = tokenizer_name_of(path);
  const std::size_t shards = checkpoint.optimizer_files().size();
  json.add("tokenizer", tokenizer).add("optimizer_files", shards);
  return {"checkpoint",
          cat(path, ": checkpoint of step ", state.step, ", whole\n  task ", config.task, ", ",
              human_count(static_cast<double>(elements)), " parameters, ",
              human_count(static_cast<double>(state.tokens)), " tokens seen\n  ",
              state.arithmetic.precision, " on ", state.arithmetic.isa, ", BLAS core ",
              state.arithmetic.blas_core, ", fovea ", state.version,
              tokenizer.empty()     ? ""
              : tokenizer == "byte" ? "\n  byte tokens"
                                    : "\n  with its tokenizer",
              shards > 1 ? cat("\n  optimizer state in ", shards, " files") : "",
              state.best.any
                  ? cat("\n  best evaluation ", state.best.value, " at step ", state.best.step)
                  : ""),
          json.str(),
          {}};
}

Inspection inspect_run(const std::string& path) {
  const std::vector<CheckpointName> names = checkpoints_in(path);
  const std::optional<RunStatus> status = read_status(path);
  std::string newest, fault;
  for (auto name = names.rbegin(); name != names.rend() && newest.empty(); ++name) {
    try {
      newest = Checkpoint(name->path).path();
    } catch (const CheckpointError& e) {
      if (fault.empty()) fault = e.what();
    }
  }
  if (newest.empty() && !names.empty())
    throw CheckpointError(cat(path, ": no checkpoint is whole: ", fault));
  std::string text = cat(path, ": run folder, ",
                         status ? name_text(status->status) : std::string("status unknown"));
  JsonObject json, metrics;
  json.add("kind", "run folder").add("path", path);
  if (status) {
    text +=
        cat(", step ", status->step, status->max_steps > 0 ? cat(" of ", status->max_steps) : "");
    if (!status->message.empty()) text += cat("\n  ", data::quote(status->message, 400));
    json.add("status", status->status)
        .add("step", status->step)
        .add("max_steps", status->max_steps);
    for (const auto& [name, value] : status->metrics) {
      text += cat("\n  ", name_text(name), " ", value);
      metrics.add(name, value);
    }
  }
  text += cat("\n  ", plural(static_cast<std::int64_t>(names.size()), "checkpoint"));
  if (!newest.empty()) text += cat(", newest whole one ", newest);
  json.add("checkpoints", names.size()).raw("metrics", metrics.str()).add("newest", newest);
  if (!fault.empty()) json.add("fault", fault);
  return {"run folder", text, json.str(), fault};
}

Inspection inspect_config(const std::string& path) {
  const RunConfig config = RunConfig::from(config::load(path));
  const models::ModelConfig& m = config.model;
  return {"config",
          cat(path, ": config of task ", config.task, "\n  model ", m.kind, ", ", m.n_layer,
              " layers, ", m.n_head, " heads, width ", m.n_embd, ", block size ", m.block_size,
              "\n  data ", config.data.kind,
              config.data.path.empty() ? "" : cat(" ", data::quote(config.data.path)), "\n  ",
              config.train.global_batch_size, " sequences a step, ", config.planned_steps(),
              " steps, ", name_of(config.train.precision)),
          JsonObject()
              .add("kind", "config")
              .add("path", path)
              .add("task", config.task)
              .add("planned_steps", config.planned_steps())
              .raw("config", config.resolved.json())
              .str(),
          {}};
}

}  // namespace fovea::train
