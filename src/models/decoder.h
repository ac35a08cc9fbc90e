#pragma once
// The decoder-only language model, GPT-2 style and Llama style.

#include <cstdint>
#include <memory>
#include <vector>

#include "autograd/ops/loss.h"
#include "models/transformer.h"

namespace fovea::models {

using DecoderInput = TransformerInput;
using DecoderOutput = TransformerOutput;

struct DecoderLoss : CrossEntropy {
  std::vector<Var> aux;
};

// Parameter paths as those of Transformer, and head.weight [V,C] (tied: alias of wte.weight).
class DecoderLm final : public Transformer {
 public:
  // Use build(), which checks the configuration and names the tree.
  explicit DecoderLm(const ModelConfig& config);

  Var hidden(Ctx& ctx, const DecoderInput& in) { return forward(ctx, in).hidden; }
  Var logits(Ctx& ctx, const DecoderInput& in) { return head(ctx, hidden(ctx, in)); }
  // The summed cross-entropy of targets [B,N] i32 with -1 = ignored; logits are never stored whole.
  DecoderLoss loss(Ctx& ctx, const DecoderInput& in, const Tensor& targets);
  // The same of hidden states [..., C] that forward() gave, without auxiliary terms.
  CrossEntropy loss_of(Ctx& ctx, const Var& hidden, const Tensor& targets);
  // Logits of hidden states [..., C] -> [..., V].
  Var head(Ctx& ctx, const Var& hidden) { return head_->forward(ctx, hidden); }

  // An empty past for `batch` sequences of up to max_length tokens. Null if the method of any layer
  // cannot decode step by step.
  std::unique_ptr<DecoderState> start(Ctx& ctx, int batch, int max_length);

  // Weights that take part in a product of every token, the head included.
  std::int64_t matmul_parameters() const;

 private:
  nn::Linear* head_ = nullptr;
};

}  // namespace fovea::models
