#pragma once
// From a configuration to a model, and what it costs.

#include <memory>

#include "models/decoder.h"
#include "models/encoder.h"

namespace fovea::models {

// The model, its tree named from the root "". Parameters have no values until an
// optim::ParameterStore adopts it. Throws ConfigError for sizes that do not fit together, an
// unknown attention kind (with the nearest), and what a method refuses.
std::unique_ptr<DecoderLm> build(const ModelConfig& config);
// The same for model.kind encoder, whose `classes` must be known too.
std::unique_ptr<Encoder> build_encoder(const ModelConfig& config);

// The method of one layer. Throws ConfigError for a kind that is not there, with the nearest.
const attention::AttentionSpec& attention_spec(const ModelConfig::AttentionChoice& choice);

// How `layer` sees the attention seam. `shared` must outlive the construction of the model.
attention::AttentionConfig attention_config(const ModelConfig& config, int layer,
                                            nn::SharedParameters* shared);
// The whole block's configuration.
BlockConfig block_config(const ModelConfig& config, int layer, nn::SharedParameters* shared);

// Parameters of any model, shared ones counted once.
std::int64_t parameter_count(nn::Module& model);

// FLOPs of one training step, forward and backward; multiply-add = 2.
struct TrainFlops {
  double useful = 0;    // 6 per matmul weight and row it sees, and the useful cost of attention
  double executed = 0;  // what the kernels do: attention's executed cost, and what is recomputed
};
TrainFlops train_flops(const DecoderLm& model, std::int64_t batch, std::int64_t length,
                       bool recompute = false);
TrainFlops train_flops(const Encoder& model, std::int64_t batch, std::int64_t length,
                       bool recompute = false);

}  // namespace fovea::models
