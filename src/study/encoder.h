#pragma once
// A pre-norm encoder that classifies a sequence by the mean of its last states: the blocks of the
// decoder, without its mask.

#include <vector>

#include "autograd/ops/loss.h"
#include "models/block.h"
#include "models/config.h"
#include "nn/embedding.h"

namespace fovea::study {

// Parameter paths as those of models::DecoderLm, besides head.{weight [classes, C], bias}.
class Encoder final : public nn::Module {
 public:
  // Throws ConfigError as models::build does for what a method refuses.
  Encoder(const models::ModelConfig& config, int classes);

  // ids i32 [B,N] -> logits [B, classes].
  Var logits(Ctx& ctx, const Tensor& ids);

 private:
  nn::Embedding* wte_ = nullptr;
  nn::Embedding* wpe_ = nullptr;
  std::vector<models::Block*> blocks_;
  nn::Norm* norm_f_ = nullptr;
  nn::Linear* head_ = nullptr;
};

}  // namespace fovea::study
