#pragma once
// Weights that another run or another program made, whatever their layout, as a model of ours.

#include <string>

#include "autograd/ctx.h"
#include "config/node.h"
#include "models/config.h"
#include "nn/module.h"
#include "optim/parameter_store.h"
#include "train/import/foreign_tensors.h"
#include "train/import/weight_plan.h"

namespace fovea::train {

struct ImportedModel {
  std::string path;            // of the folder or file that was found
  std::string layout;          // for people: "Hugging Face gpt2", "llama2.c", "fovea checkpoint"
  models::ModelConfig config;  // vocab_size is never 0; dropout and init_std only of our own
  config::Node keys;           // the same as the section `model` of a configuration
  ForeignTensors tensors;
  WeightPlan plan;
};

// `path` is one of
//   a run folder or a checkpoint of ours (every byte is verified)
//   a Hugging Face folder of GPT-2, Llama or Qwen3: config.json with model.safetensors or
//     model.safetensors.index.json; or one of these two files. F32, F16, BF16 and F64; names with
//     or without the prefix of the inner model; lm_head absent, tied or untied; absent biases are
//     zero (and model.bias is false if there is none at all)
//   a .bin model of llama2.c, version 0
// Reads sizes and names, not yet the weights, and compares them: nothing is allocated for a model
// that its file does not hold. Throws CheckpointError naming the field of config.json that we
// cannot do, or all missing, extra and mis-shaped tensors.
ImportedModel import_model(const std::string& path);

// Whether import_model would take this for a model of another program; false for what does not
// exist.
bool is_foreign_model(const std::string& path);

// Fills the model, which `store` has adopted, and refreshes the compute copies. An attention method
// other than the source's keeps its own parameters (below attn.method) as they were initialised,
// and projections for global tokens that the source has not are copies of its others (baselines.md
// 6.2); the log says so. Throws CheckpointError that lists what does not fit, before anything is
// changed.
void load_weights(const ImportedModel& from, Ctx& ctx, nn::Module& model,
                  optim::ParameterStore& store);

}  // namespace fovea::train
