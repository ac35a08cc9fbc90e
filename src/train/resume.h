#pragma once
// From where a run starts: fresh, from a checkpoint of its folder, or from another one.

#include <optional>
#include <string>
#include <vector>

#include "train/checkpoint.h"
#include "train/run_config.h"
#include "train/run_folder.h"

namespace fovea::train {

// The newest whole checkpoint of a run folder; torn ones are passed over with a loud warning each.
// Nothing if there is no checkpoint at all. Throws CheckpointError if there are some and none is
// whole.
std::optional<Checkpoint> newest_checkpoint(const std::string& run_folder);
// A checkpoint folder, or the newest whole one of a run folder. Throws CheckpointError if there is
// none.
Checkpoint find_checkpoint(const std::string& run_or_checkpoint);

// Keys of the resolved configurations whose difference may change results: "optim.lr: 0.1 -> 0.2".
// Not: threads, recompute, micro_order, micro_batch_size, device, resume, max_time, out_dir, log,
// ckpt, eval.interval and eval.patience; max_steps and max_tokens where the schedule does not
// depend on them.
std::vector<std::string> conflicting_keys(const RunConfig& then, const RunConfig& now);

struct Start {
  std::optional<Checkpoint> checkpoint;  // none: step 0
  bool own = true;                       // whether it belongs to this run's folder
};

// By train.resume. Sets checkpoints of the folder beyond the start aside. Throws ConfigError where
// the folder holds a run that would be overwritten, or the configurations conflict;
// CheckpointError.
Start choose_start(const RunConfig& config, const RunFolder& folder);

}  // namespace fovea::train
