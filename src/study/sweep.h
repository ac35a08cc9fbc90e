#pragma once
// Runs a study: a child process a run, several at a time.

#include <chrono>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "study/study_plan.h"

namespace fovea::study {

struct SweepOptions {
  int jobs = 1;         // runs at a time
  int threads = 1;      // of this machine's processor, shared by the jobs
  std::string program;  // that trains: PROGRAM train CONFIG; empty: this very binary
  // GPUs, as CUDA_VISIBLE_DEVICES names them: a run at a time gets one; empty: the variable stays.
  std::vector<std::string> devices;
  // Of runs that are still training; doubled from one to the next, up to five minutes.
  std::chrono::milliseconds between_reports{10'000};
};

struct FailedRun {
  std::string cell, folder, message;
  std::int64_t seed = 0;
  int code = 0;  // exit code, or 128 + signal
};

struct SweepEnd {
  // ok: all runs finished; failed: some did not; stopped: a signal asked for it, or a run was
  // stopped; after a second signal 128 + its number.
  ExitCode code = ExitCode::ok;
  int finished = 0, unfinished = 0;
  std::vector<FailedRun> failed;
};

// Trains what is not finished yet, in the study's folder:
//   ledger.sqlite, configs/ what each run is told, logs/ what it says, runs/ their folders
// Runs that failed before come last. A run that another process trains, such as a child left over
// from a sweep that was killed, is waited for. Children have process groups of their own: SIGINT,
// SIGTERM and SIGHUP are handed on, and each saves its state; a second one ends all at once. If
// this process is killed, they get SIGTERM. Call it from the main thread. Throws ConfigError,
// IoError; children are then stopped first.
SweepEnd sweep(const StudyFile& study, std::span<PlannedRun> runs, const SweepOptions& options);

}  // namespace fovea::study
