#pragma once
// What a run left in its folder, as a report counts it.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "study/study_file.h"

namespace fovea::study {

// Medians and peaks of perf.jsonl, whatever else ran on the machine; absent where it has none.
struct RunCost {
  std::optional<double> tokens_per_second;      // median over its lines, without the first
  std::optional<double> peak_bytes;             // the largest
  std::optional<double> flops, executed_flops;  // of one step
  std::optional<double> parameters;             // trained ones
  std::optional<double> seconds;                // of training, over all starts
};

struct RunRecord {
  // "finished", "failed", "stopped", "running" or "not started".
  std::string state;
  std::int64_t step = 0, max_steps = 0;
  std::vector<std::pair<std::string, double>> metrics;  // of the evaluation that counts, finite
  std::string message;  // why it failed, or why a finished run has no metrics
  RunCost cost;
};

// Reads the folder of a run; never throws for what it finds there.
RunRecord read_run(const std::string& folder, Select select);

}  // namespace fovea::study
