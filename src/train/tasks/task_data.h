#pragma once
// The data of a task, opened when first asked for, and the model's sizes that follow from it.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "data/loader.h"
#include "data/source.h"
#include "train/run_config.h"

namespace fovea::train {

// The model with its vocabulary and classes where they come from the data. May read the data.
// Throws ConfigError, IoError.
models::ModelConfig model_of(const RunConfig& config);

class TaskData {
 public:
  // `vocabulary`: how many token ids the model has.
  TaskData(const RunConfig& config, std::int64_t vocabulary);

  const data::Loader& loader();
  const data::Source& training();
  std::string fingerprint() { return training().fingerprint(); }

  using Sources = std::vector<std::unique_ptr<data::Source>>;
  // `open` is called when the split is first asked for. Batches have as many rows as
  // eval.micro_batch_size asks for sequences of data.seq_len, fewer of longer ones, rounded so that
  // no bit depends on it.
  const data::EvalLoader& held_out(data::Split split, const std::function<Sources()>& open);
  // What held_out() has opened: the split's sources.
  const Sources& opened(data::Split split) const { return held_out_.at(split).sources; }
  std::unique_ptr<data::Source> open(data::Split split) const;
  // Throws ConfigError if the data has ids that the model lacks.
  void require_vocabulary(std::int64_t ids) const;

  const data::DataConfig& config() const { return config_; }
  std::uint64_t seed() const { return seed_; }
  const data::BatchShape& shape() const { return shape_; }

 private:
  struct HeldOut {
    Sources sources;
    std::unique_ptr<data::EvalLoader> loader;
  };

  data::DataConfig config_;
  std::uint64_t seed_;
  data::BatchShape shape_;
  std::int64_t eval_micro_batch_, vocabulary_;
  std::unique_ptr<data::Source> source_;
  std::unique_ptr<data::Loader> loader_;
  std::map<data::Split, HeldOut> held_out_;
};

}  // namespace fovea::train
