#pragma once
// Starts the processes of a run on this machine, hands each its rank, ends them together, and
// starts them again after a failure that may pass.

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/error.h"

namespace fovea::dist {

struct LaunchOptions {
  std::string program;                 // empty: this very binary
  std::vector<std::string> arguments;  // without the program's name
  int processes = 1;
  int max_restarts = 0;
  // After a restart that failed before it made progress, half as many processes, not fewer than
  // this; 0: always as many.
  int min_processes = 0;
  // The GPUs of the processes, as CUDA_VISIBLE_DEVICES names them, one a process; when processes
  // are halved, the half without the one that failed stays. Empty: the variable stays as it is.
  std::vector<std::string> devices;
  // The step of the newest checkpoint, -1 if there is none: what a restart goes on from. Empty:
  // nothing counts as progress.
  std::function<std::int64_t()> progress;
  // Whether a stop was asked for before; looked at once, when signals are taken here. Empty: no.
  std::function<bool()> stop;
  bool capture = false;  // keep rank 0's stdout for LaunchResult::output

  // After one failed, the others may say why; then they are asked to stop, and at last killed. A
  // hung one adds distributed.timeout: with its default all ends within half a minute.
  std::chrono::milliseconds grace{4'000}, until_killed{2'000};
  std::chrono::milliseconds backoff{1'000};  // before a restart; doubled while nothing is gained
};

struct LaunchResult {
  ExitCode code = ExitCode::ok;
  std::string message;  // who failed and how; empty if nobody did
  std::string output;   // rank 0's stdout of the last start, if captured
};

// Starts the program `processes` times with the environment of dist/world.h and waits for all.
//   Signals: SIGINT, SIGTERM and SIGHUP are handed on to all; a second one ends the run at once.
//     The processes have process groups of their own, so that a terminal's Ctrl-C comes this way
//     only. If this process is killed, they get SIGTERM.
//   Output: rank 0 has this process's stdout and stderr. The others' stdout is dropped; the last
//     lines of their stderr are shown of the one that failed. stdin is empty.
//   Result: the code of the process that failed, communication for one that was killed; 75 if one
//     was stopped and saved; else 0. A second signal: 128 + its number. Which one failed its ranks
//     say (dist/verdict.h), with the reason; of others it is the one that ended first.
//   Restarts: after a process was killed or ended with communication or device; not where a rank
//     had no device to begin with at the first start.
// Call it from the main thread, one at a time in a process. Throws IoError if a process cannot be
// started.
LaunchResult launch(const LaunchOptions& options);

}  // namespace fovea::dist
