#pragma once
// From where a run starts, the same on all ranks: rank 0 looks, the others are told.

#include <optional>

#include "train/ranks.h"
#include "train/resume.h"
#include "train/train.h"

namespace fovea::train {

struct AgreedStart {
  Start start;
  // The run ended by itself, with its closing evaluation, and this configuration has nothing to
  // add. Metrics are known to rank 0 only.
  std::optional<TrainResult> done;
};

// choose_start() on rank 0, which holds the folder's lock. All ranks call it. Throws what that
// throws.
AgreedStart agree_on_start(const RunConfig& config, const RunFolder& folder, const Ranks& ranks);

}  // namespace fovea::train
