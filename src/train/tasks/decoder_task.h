#pragma once
// What all tasks of the decoder share: the model, the loss; they differ in what they report.

#include <memory>
#include <string>
#include <vector>

#include "models/decoder.h"
#include "train/run_config.h"
#include "train/task.h"
#include "train/tasks/task_data.h"

namespace fovea::train {

class DecoderTask : public Task {
 public:
  explicit DecoderTask(const RunConfig& config);

  const data::Loader& loader() override { return data_.loader(); }
  const data::EvalLoader& held_out(Split split) override;
  std::string data_fingerprint() override { return data_.fingerprint(); }
  nn::Module& model() override { return *model_; }
  std::int64_t vocabulary() const override { return model_->config().vocab_size; }
  Loss forward(Ctx& ctx, const data::Batch& batch) override;
  // loss_sum, targets, and sums["correct"]: targets that the largest logit names.
  void score(Ctx& ctx, const data::Batch& batch, Metrics& into) override;
  double step_flops(bool executed) const override;
  std::vector<std::string> summary() override;

 protected:
  // Opened when first asked for.
  virtual TaskData::Sources open_held_out(Split split);
  TaskData& data() { return data_; }
  const TaskData& data() const { return data_; }
  models::DecoderLm& decoder() { return *model_; }
  // [B,N,C] behind the final norm.
  Tensor hidden_of(Ctx& ctx, const data::Batch& batch);

 private:
  bool recompute_;
  std::unique_ptr<models::DecoderLm> model_;
  TaskData data_;
};

}  // namespace fovea::train
