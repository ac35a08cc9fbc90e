#pragma once
// config.json of the Hugging Face layout: what a model elsewhere is made of, in our terms.

#include <optional>
#include <string>

#include "models/config.h"

namespace fovea::train {

enum class HubFamily { gpt2, llama };  // llama: Qwen3 too

struct HubConfig {
  HubFamily family = HubFamily::gpt2;
  std::string model_type;  // gpt2, llama or qwen3
  // Left open, for only the tensors tell: bias, tie_embeddings. Not taken: dropout, which belongs
  // to training.
  models::ModelConfig model;
  std::optional<bool> tie_embeddings;  // nothing if the file does not say
};

// Fields that change nothing of what is computed are passed over. Throws IoError for a file that is
// no JSON object; CheckpointError naming the field for an architecture other than GPT-2, Llama and
// Qwen3, values that are missing or out of range, and what these may have but we do not: other
// activations, scaled rotation, sliding windows, quantised weights and the like.
HubConfig read_hub_config(const std::string& path);

// Exact attention in every layer.
std::vector<models::ModelConfig::AttentionChoice> standard_attention(int layers);

}  // namespace fovea::train
