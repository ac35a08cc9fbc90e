#pragma once
// What a rank leaves behind when it ends because of another.

#include <string>

#include "core/error.h"
#include "train/run_folder.h"

namespace fovea::train {

// Logs why, on rank 0 puts status.json and the folder in order, and ends the process with the code
// wherever it is. For dist::SessionOptions::on_failure: called by another thread than training's.
[[noreturn]] void end_because(const RunFolder& folder, bool first, ExitCode code,
                              const std::string& message);

}  // namespace fovea::train
