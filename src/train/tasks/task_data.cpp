#include "train/tasks/task_data.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "train/eval_rows.h"

namespace fovea::train {

models::ModelConfig model_of(const RunConfig& config) {
  models::ModelConfig out = config.model;
  if (out.vocab_size == 0) out.vocab_size = data::vocab_size(config.data);
  if (out.classes == 0) out.classes = data::classes_of(config.data);
  return out;
}

TaskData::TaskData(const RunConfig& config, std::int64_t vocabulary)
    : config_(config.data),
      seed_(config.seed),
      shape_{config.train.global_batch_size, config.train.micro_batch_size},
      eval_micro_batch_(config.eval.micro_batch_size),
      vocabulary_(vocabulary) {}

void TaskData::require_vocabulary(std::int64_t ids) const {
  if (vocabulary_ >= ids) return;
  throw ConfigError(
      cat("model.vocab_size is ", vocabulary_, ", but the data has ", ids, " token ids"));
}

std::unique_ptr<data::Source> TaskData::open(data::Split split) const {
  require_vocabulary(data::vocab_size(config_));
  return data::make_source(config_, config_.seq_len, split, seed_);
}

const data::Source& TaskData::training() {
  loader();
  return *source_;
}

const data::Loader& TaskData::loader() {
  if (loader_ == nullptr) {
    source_ = open(data::Split::train);
    loader_ = std::make_unique<data::Loader>(*source_, shape_, seed_);
  }
  return *loader_;
}

const data::EvalLoader& TaskData::held_out(data::Split split,
                                           const std::function<Sources()>& open) {
  HeldOut& out = held_out_[split];
  if (out.loader != nullptr) return *out.loader;
  out.sources = open();
  std::vector<data::EvalLoader::Part> parts;
  for (const auto& source : out.sources) {
    const std::int64_t length = source->seq_len();
    const std::int64_t fit = length <= config_.seq_len
                                 ? eval_micro_batch_
                                 : eval_micro_batch_ * config_.seq_len / length;
    parts.push_back({source.get(), eval_rows(std::max<std::int64_t>(1, fit), length)});
  }
  out.loader = std::make_unique<data::EvalLoader>(std::move(parts));
  return *out.loader;
}

}  // namespace fovea::train
