#pragma once
// Classifying whole sequences with an encoder.

#include <memory>
#include <string>
#include <vector>

#include "models/encoder.h"
#include "train/run_config.h"
#include "train/task.h"
#include "train/tasks/task_data.h"

namespace fovea::train {

class ClassificationTask : public Task {
 public:
  explicit ClassificationTask(const RunConfig& config);

  const data::Loader& loader() override { return data_.loader(); }
  const data::EvalLoader& held_out(Split split) override;
  std::string data_fingerprint() override { return data_.fingerprint(); }
  nn::Module& model() override { return *model_; }
  std::int64_t vocabulary() const override { return model_->config().vocab_size; }
  // One target a row.
  Loss forward(Ctx& ctx, const data::Batch& batch) override;
  // loss_sum, targets, and sums["correct"]: labels that the largest logit names.
  void score(Ctx& ctx, const data::Batch& batch, Metrics& into) override;
  // sums["correct NAME"] of every guess that needs no model (data::Source::guesses).
  void count(Split split, std::int64_t examples, Metrics& into) override;
  // loss, accuracy, its binomial standard error, and what the guesses reach.
  Report report(const Metrics& metrics) const override;
  std::string_view watched() const override { return "accuracy"; }
  bool larger_is_better() const override { return true; }
  double step_flops(bool executed) const override;
  std::vector<std::string> summary() override;

 private:
  bool recompute_;
  std::unique_ptr<models::Encoder> model_;
  TaskData data_;
};

}  // namespace fovea::train
