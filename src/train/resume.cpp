#include "train/resume.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <system_error>

#include "config/yaml.h"
#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "train/environment.h"
#include "train/flat_settings.h"
#include "train/manifest.h"
#include "train/trainer.h"

namespace fovea::train {

namespace {

namespace fs = std::filesystem;

bool changes_nothing(const std::string& key) {
  static constexpr std::array<std::string_view, 17> kKeys = {"train.threads",
                                                             "train.recompute",
                                                             "train.micro_order",
                                                             "train.device",
                                                             "train.cuda_graphs",
                                                             "train.gemm_table",
                                                             "train.resume",
                                                             "out_dir",
                                                             "train.micro_batch_size",
                                                             "train.max_time",
                                                             "eval.interval",
                                                             "eval.patience",
                                                             "distributed.zero",
                                                             "distributed.bucket_mb",
                                                             "distributed.check_interval",
                                                             "distributed.timeout",
                                                             "distributed.join_timeout"};
  return std::find(kKeys.begin(), kKeys.end(), key) != kKeys.end() || key.starts_with("log.") ||
         key.starts_with("ckpt.");
}

void require_same_run(const RunConfig& config, const Checkpoint& checkpoint) {
  const std::string source = cat(checkpoint.path(), "/state.json");
  const RunConfig then =
      RunConfig::of_checkpoint(config::parse(checkpoint.state().config_yaml, source));
  const std::vector<std::string> keys = conflicting_keys(then, config);
  if (!keys.empty()) {
    throw ConfigError(cat(checkpoint.path(), " is of a run with another configuration:\n  ",
                          join(keys, "\n  "), "\nchange these back, or choose another out_dir"));
  }
  if (config.train.micro_batch_given &&
      then.train.micro_batch_size != config.train.micro_batch_size) {
    log::warn(cat("train.micro_batch_size is ", config.train.micro_batch_size, ", but was ",
                  then.train.micro_batch_size,
                  ": the same sums in another order, so the last bits will differ"));
  }
  const std::string other =
      difference(checkpoint.state().arithmetic, arithmetic(device_of(config.train), config.train));
  if (!other.empty()) {
    log::warn(cat("RESUMING WITH OTHER ARITHMETIC (", other,
                  "): from here on the bits differ from those of an undisturbed run"));
  }
}

// "runs/a/ckpt/step_00000010" -> "runs/a".
fs::path run_folder_of(const std::string& checkpoint) {
  std::error_code error;
  const fs::path real = fs::canonical(checkpoint, error);
  return error ? fs::path() : real.parent_path().parent_path();
}

Start from_path(const RunConfig& config, const RunFolder& folder) {
  Start out{find_checkpoint(config.train.resume)};
  std::error_code error;
  out.own = run_folder_of(out.checkpoint->path()) == fs::canonical(folder.path(), error);
  if (!out.own && !checkpoints_in(folder.path()).empty()) {
    throw ConfigError(cat(
        folder.path(), " has checkpoints of its own: choose another out_dir for what starts from ",
        config.train.resume));
  }
  return out;
}

}  // namespace

std::vector<std::string> conflicting_keys(const RunConfig& then, const RunConfig& now) {
  const std::map<std::string, std::string> a = flat_settings(then.resolved);
  std::map<std::string, std::string> b = flat_settings(now.resolved);
  for (const auto& [key, value] : a)
    b.emplace(key, "none");
  const bool fixed_length = now.hangs_on_length();
  std::vector<std::string> out;
  if (then.resume_hash() == now.resume_hash()) return out;
  for (const auto& [key, value] : b) {
    const auto before = a.find(key);
    const std::string old = before == a.end() ? "none" : before->second;
    const bool length = key == "train.max_steps" || key == "train.max_tokens";
    if (old == value || changes_nothing(key) || (length && !fixed_length)) continue;
    out.push_back(cat(key, ": ", old, " -> ", value));
  }
  return out;
}

std::optional<Checkpoint> newest_checkpoint(const std::string& run_folder) {
  std::vector<CheckpointName> names = checkpoints_in(run_folder);
  std::string reasons;
  for (auto name = names.rbegin(); name != names.rend(); ++name) {
    try {
      Checkpoint out(name->path);
      if (!reasons.empty()) log::warn(cat("FALLING BACK to the older checkpoint ", name->path));
      return out;
    } catch (const CheckpointError& e) {
      log::warn(cat("CHECKPOINT IS NOT WHOLE: ", e.what()));
      reasons += cat("\n  ", e.what());
    }
  }
  if (names.empty()) return std::nullopt;
  throw CheckpointError(cat(run_folder, ": no checkpoint is whole:", reasons));
}

Checkpoint find_checkpoint(const std::string& path) {
  if (fs::exists(cat(path, "/", kManifestName))) return Checkpoint(path);
  if (fs::is_directory(cat(path, "/ckpt"))) {
    if (std::optional<Checkpoint> out = newest_checkpoint(path)) return std::move(*out);
    throw CheckpointError(cat(path, ": the run has no checkpoint yet"));
  }
  if (!fs::exists(path))
    throw CheckpointError(
        cat(path, ": is neither a run folder nor a checkpoint: it does not exist"));
  // What is left of a checkpoint says what is missing.
  const bool some =
      fs::exists(cat(path, "/state.json")) || fs::exists(cat(path, "/model.safetensors"));
  if (fs::is_directory(path) && !some)
    throw CheckpointError(cat(path, ": is neither a run folder, a checkpoint nor a model"));
  return Checkpoint(path);
}

Start choose_start(const RunConfig& config, const RunFolder& folder) {
  Start out;
  if (config.train.resume == "never") {
    const std::vector<CheckpointName> there = checkpoints_in(folder.path());
    if (there.empty()) return out;
    throw ConfigError(cat(folder.path(), " already holds a run (up to step ", there.back().step,
                          "), and train.resume is never: choose another out_dir, delete it, or use "
                          "train.resume: auto"));
  }
  if (config.train.resume == "auto") {
    out.checkpoint = newest_checkpoint(folder.path());
  } else {
    out = from_path(config, folder);
  }
  if (!out.checkpoint) return out;
  require_same_run(config, *out.checkpoint);
  if (const int given_up = out.own ? folder.discard_beyond(out.checkpoint->state().step) : 0;
      given_up > 0) {
    log::warn(cat(folder.path(), ": ", given_up,
                  given_up == 1 ? " newer checkpoint is" : " newer checkpoints are",
                  " set aside as ckpt/discarded_step_*"));
  }
  return out;
}

}  // namespace fovea::train
