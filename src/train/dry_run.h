#pragma once
// What a run will take, without running it: steps and an evaluation on the meta device, through the
// very code that a real run takes.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "train/run_config.h"
#include "train/trainer.h"

namespace fovea::train {

// Bytes of one kind of state or work.
struct MemoryKind {
  std::string_view name;
  std::size_t bytes = 0;
};

struct DryRun {
  bool on_gpu = false;  // what the prediction is for
  int ranks = 1, zero = 0;
  MemoryUse memory;  // predicted peaks of rank 0, which has as much to do as any: memory.total() is
                     // what perf.jsonl calls peak_bytes
  // memory.total() by kind: masters, compute_copies, gradients, moments, reduction (what gradients
  // are staged in between ranks), other, activations.
  std::vector<MemoryKind> kinds;
  std::int64_t parameters = 0;        // trained ones
  std::int64_t micro_batch_size = 0;  // sequences
  std::int64_t micro_batches = 0;     // V, of all ranks
  std::int64_t gradient_buffers = 0;  // flat ones of rank 0's part of the tree
  double step_flops = 0;              // of rank 0, counted while stepping
  // By the model's formulas, of all ranks.
  double useful_flops = 0, executed_flops = 0;
  std::int64_t planned_steps = 0;
  std::int64_t tokens_per_step = 0;
  // What an evaluation reports, by name, and whether results may add names; none: there is none.
  std::vector<std::string> metrics;
  bool reports_more = false;
  std::string by_tag;  // both lifetimes by op, largest first
};

// Reads the data (its errors are found here) and computes nothing. For a run of so many ranks, on
// the device that train.device asks for, which need not be there. train.micro_batch_size: auto is a
// rank's share here (train/micro_batch.h has what it would be). Throws what train() would.
DryRun dry_run(const RunConfig& config, int ranks = 1);
std::string dry_run_text(const DryRun& result);
std::string dry_run_json(const DryRun& result);

}  // namespace fovea::train
