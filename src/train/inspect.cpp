#include "train/inspect.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "config/yaml.h"
#include "core/error.h"
#include "core/file.h"
#include "core/text.h"
#include "data/quote.h"
#include "data/safetensors.h"
#include "train/checkpoint.h"
#include "train/json_text.h"
#include "train/manifest.h"
#include "train/resume.h"
#include "train/run_config.h"
#include "train/run_folder.h"
#include "train/run_status.h"

namespace fovea::train {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kMostRows = 40;

std::string plural(std::int64_t n, const char* one) {
  return cat(n, " ", one, n == 1 ? "" : "s");
}

// A name out of a file, safe for a terminal.
std::string name_text(const std::string& name) {
  const std::string quoted = data::quote(name);
  return quoted.substr(1, quoted.size() - 2);
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string out = "[";
  for (const std::int64_t size : shape)
    out += cat(out.size() > 1 ? "," : "", size);
  return out + "]";
}

Inspection inspect_safetensors(const std::string& path) {
  const data::SafetensorsFile file(path);
  std::map<std::string, std::int64_t> by_dtype;
  std::int64_t elements = 0;
  std::uint64_t bytes = 0;
  std::string rows, tensors, dtypes;
  std::size_t shown = 0;
  for (const data::SafetensorsEntry& entry : file.entries()) {
    std::int64_t n = 1;
    for (const std::int64_t size : entry.shape)
      n *= size;
    elements += n;
    bytes += entry.end - entry.begin;
    ++by_dtype[entry.stored_dtype];
    if (shown++ < kMostRows)
      rows +=
          cat("\n  ", name_text(entry.name), " ", entry.stored_dtype, " ", shape_text(entry.shape));
    tensors += cat(tensors.empty() ? "" : ",", JsonObject()
                                                   .add("name", entry.name)
                                                   .add("dtype", entry.stored_dtype)
                                                   .raw("shape", shape_text(entry.shape))
                                                   .str());
  }
  if (shown > kMostRows) rows += cat("\n  ... and ", shown - kMostRows, " more");
  for (const auto& [dtype, count] : by_dtype)
    dtypes += cat(dtypes.empty() ? "" : ", ", count, " ", dtype);
  return {"safetensors",
          cat(path, ": safetensors, ",
              plural(static_cast<std::int64_t>(file.entries().size()), "tensor"),
              dtypes.empty() ? "" : cat(" (", dtypes, ")"), ", ",
              human_count(static_cast<double>(elements)), " elements, ",
              human_bytes(static_cast<double>(bytes)), rows),
          JsonObject()
              .add("kind", "safetensors")
              .add("path", path)
              .add("elements", elements)
              .add("bytes", bytes)
              .raw("tensors", cat("[", tensors, "]"))
              .str()};
}

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

Inspection inspect_checkpoint(const std::string& path) {
  const Checkpoint checkpoint(path);
  const RunState& state = checkpoint.state();
  const RunConfig config =
      RunConfig::from(config::parse(state.config_yaml, cat(path, "/state.json")));
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
  return {"checkpoint",
          cat(path, ": checkpoint of step ", state.step, ", whole\n  task ", config.task, ", ",
              human_count(static_cast<double>(elements)), " parameters, ",
              human_count(static_cast<double>(state.tokens)), " tokens seen\n  ",
              state.arithmetic.precision, " on ", state.arithmetic.isa, ", BLAS core ",
              state.arithmetic.blas_core, ", fovea ", state.version,
              state.best.any
                  ? cat("\n  best evaluation ", state.best.value, " at step ", state.best.step)
                  : ""),
          json.str()};
}

Inspection inspect_run(const std::string& path) {
  const std::vector<CheckpointName> names = checkpoints_in(path);
  const std::optional<RunStatus> status = read_status(path);
  const std::optional<Checkpoint> newest = newest_checkpoint(path);
  std::string text =
      cat(path, ": run folder, ", status ? status->status : std::string("status unknown"));
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
  if (newest) text += cat(", newest whole one ", newest->path());
  json.add("checkpoints", names.size()).raw("metrics", metrics.str());
  json.add("newest", newest ? newest->path() : std::string());
  return {"run folder", text, json.str()};
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
              .str()};
}

Inspection inspect_text(const std::string& path) {
  const std::string bytes = read_file(path);
  if (bytes.find('\0') != std::string::npos || !data::is_utf8(bytes)) {
    throw IoError(cat(path, ": is no file that fovea knows: neither safetensors nor text (",
                      human_bytes(static_cast<double>(bytes.size())), ", not UTF-8)"));
  }
  const auto lines = std::count(bytes.begin(), bytes.end(), '\n') +
                     (!bytes.empty() && bytes.back() != '\n' ? 1 : 0);
  return {"text",
          cat(path, ": text, ", plural(lines, "line"), ", ",
              human_bytes(static_cast<double>(bytes.size())),
              bytes.empty() ? ""
                            : cat(", begins ", data::quote(bytes.substr(0, bytes.find('\n')), 60))),
          JsonObject()
              .add("kind", "text")
              .add("path", path)
              .add("bytes", bytes.size())
              .add("lines", lines)
              .str()};
}

bool looks_like_run(const fs::path& path) {
  return fs::exists(path / "ckpt") &&
         (fs::exists(path / "config.yaml") || fs::exists(path / kStatusName) ||
          fs::exists(path / "metrics.jsonl"));
}

bool looks_like_checkpoint(const fs::path& path) {
  return fs::exists(path / kManifestName) || fs::exists(path / "state.json") ||
         fs::exists(path / "optimizer.safetensors");
}

}  // namespace

Inspection inspect(const std::string& path) {
  const fs::path p(path);
  std::error_code error;
  if (!fs::exists(p, error)) throw IoError(cat(path, ": does not exist"));
  if (fs::is_directory(p)) {
    if (looks_like_checkpoint(p)) return inspect_checkpoint(path);
    if (looks_like_run(p)) return inspect_run(path);
    throw IoError(cat(path, ": is a folder, but neither a run folder nor a checkpoint"));
  }
  const std::string extension = p.extension().string();
  if (extension == ".safetensors") return inspect_safetensors(path);
  if (extension == ".yaml" || extension == ".yml") return inspect_config(path);
  return inspect_text(path);
}

}  // namespace fovea::train
