#pragma once
// The .bin models of llama2.c, version 0: seven int32 (width, hidden width, layers, heads, key and
// value heads, vocabulary, longest sequence; a negative vocabulary: the head has weights of its
// own), then all tensors of one kind after the other in f32, little endian.
// Source: https://github.com/karpathy/llama2.c, run.c (format).

#include <string>

#include "models/config.h"
#include "train/import/foreign_tensors.h"

namespace fovea::train {

struct Llama2cModel {
  models::ModelConfig model;
  ForeignTensors tensors;  // named as llama_plan(model, "model.") wants them
};

// Throws CheckpointError: sizes that are out of range or do not divide, a length other than what
// the sizes need, a newer version of the format.
Llama2cModel open_llama2c(const std::string& path);

}  // namespace fovea::train
