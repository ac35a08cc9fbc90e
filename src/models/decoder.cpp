#include "models/decoder.h"

#include <utility>

namespace fovea::models {

DecoderLm::DecoderLm(const ModelConfig& config) : Transformer(config) {
  head_ = &child("head", config.tie_embeddings
                             ? std::make_unique<nn::Linear>(token_embedding().shared_weight())
                             : std::make_unique<nn::Linear>(config.n_embd, config.vocab_size, false,
                                                            config.init_std));
}

DecoderLoss DecoderLm::loss(Ctx& ctx, const DecoderInput& in, const Tensor& targets) {
  DecoderOutput out = forward(ctx, in);
  return {loss_of(ctx, out.hidden, targets), std::move(out.aux)};
}

CrossEntropy DecoderLm::loss_of(Ctx& ctx, const Var& hidden, const Tensor& targets) {
  const nn::Parameter& weight = head_->weight();
  return linear_cross_entropy(ctx, hidden, weight.var(), targets,
                              {.padded_rows = weight.padded_rows});
}

std::unique_ptr<DecoderState> DecoderLm::start(Ctx& ctx, int batch, int max_length) {
  auto state = std::make_unique<DecoderState>();
  for (Block* block : blocks()) {
    state->layers.push_back(block->attention().start(ctx, batch, max_length));
    if (state->layers.back() == nullptr) return nullptr;
  }
  return state;
}

std::int64_t DecoderLm::matmul_parameters() const {
  return head_->weight().shape.numel() + block_parameters();
}

}  // namespace fovea::models
