#pragma once
// status.json: how far a run is, for people, `inspect` and whoever waits for it.

#include <cstdint>
#include <optional>
#include <string>

#include "train/early_stop.h"
#include "train/task.h"

namespace fovea::train {

constexpr const char* kStatusName = "status.json";

struct RunStatus {
  std::string status;  // running, failed, or the name of an Ending
  bool ended = false;  // by itself: finished, early_stop or max_time; set by read_status
  std::int64_t step = 0, max_steps = 0, tokens = 0;
  std::int64_t parameters = 0;        // trained ones; 0: unknown
  std::int64_t checkpoint_step = -1;  // of the newest checkpoint; -1: none yet
  double seconds = 0;
  std::string message;  // why it failed
  BestSoFar best;
  Report metrics;  // of the last evaluation
};

std::string status_json(const RunStatus& status);
// Nothing if there is no file or it cannot be understood: it only ever says less than a checkpoint.
std::optional<RunStatus> read_status(const std::string& run_folder);

}  // namespace fovea::train
