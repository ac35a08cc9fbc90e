#pragma once
// The decoder-only language model, GPT-2 style and Llama style.

#include <cstdint>
#include <memory>
#include <vector>

#include "autograd/ops/loss.h"
#include "models/block.h"
#include "models/config.h"
#include "nn/embedding.h"

namespace fovea::models {

// The past of one batch while decoding: one state a layer.
struct DecoderState {
  std::vector<std::unique_ptr<attention::DecodeState>> layers;
  std::int64_t length() const { return layers.front()->length(); }  // tokens seen
};

// Tensors other than ids may be undefined.
struct DecoderInput {
  Tensor ids;             // i32 [B,N] in [0, V)
  Tensor positions = {};  // i32 [B,N]; undefined: 0..N-1, behind the state's past
  Tensor segments = {};   // i32 [B,N]; only equal segments see each other
  Tensor key_valid = {};  // u8 [B,N]; 1 = real
  // Each block's activations are computed again in backward instead of kept: the same bits.
  bool recompute = false;
  DecoderState* state = nullptr;  // ids continue what it holds
};

struct DecoderOutput {
  Var hidden;            // [B,N,C] behind the final norm
  std::vector<Var> aux;  // auxiliary terms of the attention methods, in layer order
};

struct DecoderLoss : CrossEntropy {
  std::vector<Var> aux;
};

// Parameter paths, weights [out, in]:
//   wte.weight [V,C], wpe.weight [block_size,C] (learned positions),
//   blocks.N.norm1.{weight,bias}, blocks.N.attn.* (multi_head_attention.h), blocks.N.norm2.*,
//   blocks.N.mlp.{fc | gate_up, proj}.{weight,bias}, norm_f.*, head.weight (tied: alias of
//   wte.weight).
class DecoderLm final : public nn::Module {
 public:
  // Use build(), which checks the configuration and names the tree.
  explicit DecoderLm(const ModelConfig& config);

  // Throws ShapeError for ids that are not [B,N], and where learned positions end.
  DecoderOutput forward(Ctx& ctx, const DecoderInput& in);
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

  const ModelConfig& config() const { return config_; }
  Block& block(int layer) { return *blocks_[static_cast<std::size_t>(layer)]; }
  // Weights that take part in a product of every token, the head included.
  std::int64_t matmul_parameters() const;

 private:
  Var embed(Ctx& ctx, const Tensor& ids, const Tensor& positions, std::int64_t end);
  Var position_table(Ctx& ctx, std::int64_t end);

  ModelConfig config_;
  nn::Embedding* wte_ = nullptr;
  nn::Embedding* wpe_ = nullptr;  // null unless positions are learned
  std::vector<Block*> blocks_;
  nn::Norm* norm_f_ = nullptr;
  nn::Linear* head_ = nullptr;
  // Made when first needed, and another one when a longer sequence comes. None goes while the model
  // lives: a captured step keeps its table's address.
  std::vector<Tensor> sinusoids_;
};

}  // namespace fovea::models
