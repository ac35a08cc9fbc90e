#pragma once
// Scores a model on held-out data. The shape of its batches is fixed (the tail padded), dropout is
// off and sums are added in batch order in f64, so nothing else can change a bit.

#include <cstdint>
#include <vector>

#include "train/ranks.h"
#include "train/task.h"

namespace fovea::train {

struct Evaluation {
  Metrics metrics;
  Report report;
  double watched = 0;                      // the metric of the report that the task watches
  std::int64_t batches = 0, examples = 0;  // scored; examples without the padding
};

class Evaluator {
 public:
  // At most `max_batches` of the split's batches, the first ones; 0: all. Borrows the task.
  Evaluator(Task& task, Split split, std::int64_t max_batches);

  std::int64_t batches() const;
  // ctx: device, stream, memory, precision and seed of the run; it records nothing and does not
  // train. `losses`: where each scored target's own loss is appended, in the order of the split;
  // their sum from the first to the last is metrics.loss_sum. With several ranks, which all call
  // it, each scores every R-th batch, and all get the whole result, to the bit that of one rank.
  Evaluation run(const Ctx& ctx, std::vector<double>* losses = nullptr,
                 const Ranks& ranks = alone());

 private:
  Task& task_;
  Split split_;
  std::int64_t max_batches_;
};

// A context for evaluation with what `ctx` computes with and in: no tape, no dropout, random
// numbers of step 0.
Ctx quiet_context(const Ctx& ctx);

}  // namespace fovea::train
