#pragma once
// Scores a model on held-out data. The shape of its batches is fixed (eval.micro_batch_size, the
// tail padded), dropout is off and sums are added in batch order in f64, so nothing else can change
// a bit.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "train/task.h"

namespace fovea::train {

struct Evaluation {
  Metrics metrics;
  Report report;
  double watched = 0;  // the metric of the report that the task watches
  std::int64_t batches = 0, examples = 0;
};

class Evaluator {
 public:
  // At most `max_batches` of the split's batches, the first ones; 0: all. Borrows the task.
  Evaluator(Task& task, Split split, std::int64_t max_batches);

  // ctx: device, stream, memory, precision and seed of the run; it records nothing and does not
  // train.
  Evaluation run(const Ctx& ctx);

 private:
  Task& task_;
  Split split_;
  std::int64_t max_batches_;
};

struct EvaluateResult {
  std::string checkpoint;
  std::int64_t step = 0;
  std::string split;
  std::int64_t examples = 0;
  Report metrics;
};

// Evaluates a checkpoint folder, or the newest whole checkpoint of a run folder, with the
// configuration it was trained with and these key=value overrides (eval.*, data.*, train.precision,
// ...). A model of another program (import/imported_model.h) is evaluated with these overrides and
// the tokenizer beside it, at step 0. `split`: validation or test. Throws ConfigError, IoError,
// CheckpointError.
EvaluateResult evaluate(const std::string& run_or_checkpoint,
                        std::span<const std::string> overrides = {},
                        Split split = Split::validation);

}  // namespace fovea::train
