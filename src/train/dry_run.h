#pragma once
// What a run will take, without running it: two steps and an evaluation on the meta device, through
// the very code that a real run takes.

#include <cstdint>
#include <string>

#include "train/run_config.h"
#include "train/trainer.h"

namespace fovea::train {

struct DryRun {
  MemoryUse memory;  // predicted peaks: memory.total() is what perf.jsonl calls peak_bytes
  std::int64_t parameters = 0;                           // trained ones
  std::int64_t micro_batches = 0, gradient_buffers = 0;  // V, and flat buffers of the tree
  double step_flops = 0;                                 // counted while stepping
  double useful_flops = 0, executed_flops = 0;           // by the model's formulas
  std::int64_t planned_steps = 0;
  std::int64_t tokens_per_step = 0;
  std::string by_tag;  // both lifetimes by op, largest first
};

// Reads the data (its errors are found here) and computes nothing. Throws what train() would.
DryRun dry_run(const RunConfig& config);
std::string dry_run_text(const DryRun& result);
std::string dry_run_json(const DryRun& result);

}  // namespace fovea::train
