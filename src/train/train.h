#pragma once
// One training run, from its resolved config to a run folder: what the verb `train` calls.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "train/task.h"

namespace fovea::train {

// Why a run ended. All but failed runs (those throw) leave a whole checkpoint of their last step.
enum class Ending { finished, already_finished, early_stop, max_time, signal };
std::string_view name_of(Ending ending);

struct TrainOptions {
  std::vector<std::string> overrides;  // the key=value arguments, for overrides.txt
  bool memory = false;                 // print memory by op at the end
};

struct TrainResult {
  Ending ending = Ending::finished;
  std::int64_t step = 0, max_steps = 0;
  std::string folder, checkpoint;  // the run folder, and the newest checkpoint in it
  Report metrics;                  // of the last evaluation
};

// Trains or resumes in config.out_dir. Installs handlers for SIGINT and SIGTERM: the first asks for
// a stop after the step (Ending::signal: exit code 75), the second ends the process at once with
// 128 + its number. Throws ConfigError (the folder is in use, or belongs to a run of another
// config), IoError, CheckpointError, NumericError, OutOfMemory.
TrainResult train(const RunConfig& config, const TrainOptions& options = {});

}  // namespace fovea::train
