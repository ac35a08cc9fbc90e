#include "train/tasks/scores.h"

#include <vector>

namespace fovea::train {

void add_scores(const Ctx& ctx, const CrossEntropy& loss, const Tensor& targets, Metrics& into) {
  const bool here = ctx.device.is_cpu();
  const std::vector<double> losses =
      (here ? loss.per_row : loss.per_row.to(kCpu, ctx.stream)).values();
  for (const double row : losses)
    into.loss_sum += row;
  double correct = 0;
  for (const double row : (here ? loss.correct : loss.correct.to(kCpu, ctx.stream)).values())
    correct += row;
  into.sums["correct"] += correct;
  if (into.losses == nullptr) return;
  const Tensor ids = here ? targets : targets.to(kCpu, ctx.stream);
  for (std::size_t i = 0; i < losses.size(); ++i) {
    if (ids.data<std::int32_t>()[i] != data::kIgnored) into.losses->push_back(losses[i]);
  }
}

double sum_of(const Metrics& metrics, const std::string& name) {
  const auto found = metrics.sums.find(name);
  return found == metrics.sums.end() ? 0 : found->second;
}

}  // namespace fovea::train
