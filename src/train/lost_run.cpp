#include "train/lost_run.h"

#include <unistd.h>

#include "core/log.h"
#include "train/run_status.h"

namespace fovea::train {

void end_because(const RunFolder& folder, bool first, ExitCode code, const std::string& message) {
  // Another rank was asked to stop before there was anything to do: no failure.
  const bool failed = code != ExitCode::stopped;
  if (failed) {
    log::error(message);
  } else {
    log::warn(message);
  }
  try {
    if (first && failed) {
      RunStatus status = read_status(folder.path()).value_or(RunStatus{});
      status.status = "failed";
      status.message = message;
      folder.write(kStatusName, status_json(status));
    }
  } catch (const Error& e) {
    log::error(e.what());
  }
  folder.clear_up();
  log::flush();
  ::_exit(static_cast<int>(code));
}

}  // namespace fovea::train
