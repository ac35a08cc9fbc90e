#pragma once
// One run of a sweep while its process lives.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "dist/child_process.h"
#include "study/ledger.h"
#include "study/study_plan.h"
#include "study/sweep.h"

namespace fovea::study {

// How a run's process ended, and what that means for the run.
struct ChildEnd {
  RunState state = RunState::failed;
  int code = 0;         // 128 + signal if one killed it
  std::string message;  // why it failed
  bool in_use = false;  // it found another process training in its folder
};

class SweepChild {
 public:
  // Writes its configuration and starts it. `device`: its CUDA_VISIBLE_DEVICES, or empty. Throws
  // IoError.
  SweepChild(const std::string& study_folder, const PlannedRun& run, const SweepOptions& options,
             const std::string& device);

  pid_t pid() const { return process_->pid(); }
  // Nothing while it runs. `stopping`: the sweep has handed a signal on.
  std::optional<ChildEnd> end(bool stopping);
  bool has_ended() { return process_->status().has_value(); }
  void send(int signal) { process_->send(signal); }

 private:
  std::string folder_, log_;
  std::unique_ptr<dist::ChildProcess> process_;
};

// The step that a run's metrics.jsonl has reached; 0 if it has none.
std::int64_t step_reached(const std::string& run_folder);

}  // namespace fovea::study
