#pragma once
// Adding up what an evaluation's batches give.

#include <cmath>
#include <cstdint>
#include <string>

#include "autograd/ops/loss.h"
#include "train/eval_rows.h"
#include "train/task.h"

namespace fovea::train {

// Calls fn(from, to) for the groups of rows that are computed as one (eval_rows.h).
template <class F>
void for_groups(std::int64_t rows, std::int64_t length, F&& fn) {
  const std::int64_t group = eval_group(length);
  for (std::int64_t from = 0; from < rows; from += group)
    fn(from, from + group < rows ? from + group : rows);
}

// Adds a group's losses, in the order of its targets, and sums["correct"]; not the count of
// targets.
void add_scores(const Ctx& ctx, const CrossEntropy& loss, const Tensor& targets, Metrics& into);

// sums[name], or 0.
double sum_of(const Metrics& metrics, const std::string& name);

// The binomial standard error of a share of n (data.md 12).
inline double standard_error(double share, double n) {
  return std::sqrt(share * (1 - share) / n);
}

}  // namespace fovea::train
