#pragma once
// The configuration of an evaluation: that of training, with other data perhaps; private to train.

#include <optional>
#include <span>
#include <string>

#include "train/checkpoint.h"
#include "train/run_config.h"

namespace fovea::train {

struct EvaluatedModel {
  RunConfig config;
  std::optional<Checkpoint> checkpoint;  // none: a model of another program
};

// See evaluate(). Throws ConfigError, CheckpointError, IoError.
EvaluatedModel evaluated_model(const std::string& path, std::span<const std::string> overrides);

}  // namespace fovea::train
