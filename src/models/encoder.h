#pragma once
// The bidirectional encoder that classifies whole sequences.

#include <vector>

#include "autograd/ops/loss.h"
#include "models/transformer.h"

namespace fovea::models {

struct EncoderLoss : CrossEntropy {
  std::vector<Var> aux;
};

// A pre-norm transformer without a causal mask, pooled behind its final norm (model.pool), and a
// linear head. Padding (key_valid) is seen by nobody and pooled by nobody.
// Parameter paths as those of Transformer, and head.weight [classes,C], head.bias [classes].
// Source: data.md 5.7; CLS: Devlin et al. 2019.
class Encoder final : public Transformer {
 public:
  // Use build_encoder(), which checks the configuration and names the tree.
  explicit Encoder(const ModelConfig& config);

  Var logits(Ctx& ctx, const TransformerInput& in);  // [B, classes]
  // The summed cross-entropy of labels i32 [B], -1 = ignored.
  EncoderLoss loss(Ctx& ctx, const TransformerInput& in, const Tensor& labels);
  // The same of hidden states [B,N,C] that forward() gave, without auxiliary terms.
  CrossEntropy loss_of(Ctx& ctx, const Var& hidden, const Tensor& key_valid, const Tensor& labels);

  // Weights of the product of every sequence's pooled state.
  std::int64_t head_parameters() const;

 private:
  Var classify(Ctx& ctx, const Var& hidden, const Tensor& key_valid);

  nn::Linear* head_ = nullptr;
};

}  // namespace fovea::models
