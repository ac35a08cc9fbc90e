#pragma once
// What all tasks of the decoder share: sources, loaders, the model, the loss; they differ in what
// they report.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "data/source.h"
#include "models/decoder.h"
#include "train/run_config.h"
#include "train/task.h"

namespace fovea::train {

class DecoderTask : public Task {
 public:
  explicit DecoderTask(const RunConfig& config);

  const data::Loader& loader() override;  // the training data is read when first asked for
  const data::EvalLoader& held_out(Split split) override;
  std::string data_fingerprint() override;
  nn::Module& model() override { return *model_; }
  std::int64_t vocabulary() const override { return model_->config().vocab_size; }
  Loss forward(Ctx& ctx, const data::Batch& batch) override;
  // loss_sum, targets, and sums["correct"]: targets that the largest logit names. Batches of
  // held_out() have as many rows as eval.micro_batch_size asks for, rounded so that no bit depends
  // on it.
  void score(Ctx& ctx, const data::Batch& batch, Metrics& into) override;
  double step_flops(bool executed) const override;
  std::vector<std::string> summary() override;

 protected:
  // Opened when first asked for.
  virtual std::unique_ptr<data::Source> open_held_out(Split split) { return open(split); }
  // Throws ConfigError if the data has ids that the model lacks.
  void require_vocabulary(std::int64_t ids) const;

 private:
  std::unique_ptr<data::Source> open(Split split) const;

  struct HeldOut {
    std::unique_ptr<data::Source> source;
    std::unique_ptr<data::EvalLoader> loader;
  };

  data::DataConfig data_;
  std::uint64_t seed_;
  data::BatchShape shape_;
  std::int64_t eval_micro_batch_;
  bool recompute_;
  std::unique_ptr<data::Source> source_;
  std::unique_ptr<data::Loader> loader_;
  std::map<Split, HeldOut> held_out_;
  std::unique_ptr<models::DecoderLm> model_;
};

}  // namespace fovea::train
