#pragma once
// Which foreign tensors make up which parameter of ours.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "models/config.h"
#include "train/import/foreign_tensors.h"

namespace fovea::train {

struct WeightPart {
  std::string name;                 // of the foreign tensor
  std::vector<std::int64_t> shape;  // as stored; empty: whatever the parameter has
  bool transposed = false;          // stored [in, out]
  bool optional = false;            // zeros where the file does not have it
};

struct WeightPlan {
  // By parameter path: one part, or several one under the other.
  std::map<std::string, std::vector<WeightPart>> parts;
  std::vector<std::string> passed_over;  // globs of foreign tensors that no model of ours needs
};

// GPT-2: names with `prefix` ("transformer." or none) as in data.md 9.2.
WeightPlan gpt2_plan(const models::ModelConfig& model, const std::string& prefix);
// Llama and Qwen3: names with `prefix` ("model." or none) as in data.md 9.3; q, k and v become qkv,
// gate and up become gate_up.
WeightPlan llama_plan(const models::ModelConfig& model, const std::string& prefix);

// Compares the plan with what there is. Throws CheckpointError that lists every missing, extra and
// mis-shaped tensor, and those that hold no floating-point numbers.
void check_plan(const WeightPlan& plan, const ForeignTensors& tensors, const std::string& path);

}  // namespace fovea::train
