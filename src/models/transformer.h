#pragma once
// What every model is made of: token embeddings, a stack of blocks, and the norm behind it.

#include <cstdint>
#include <memory>
#include <vector>

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
struct TransformerInput {
  Tensor ids;             // i32 [B,N] in [0, V)
  Tensor positions = {};  // i32 [B,N]; undefined: 0..N-1, behind the state's past
  Tensor segments = {};   // i32 [B,N]; only equal segments see each other
  Tensor key_valid = {};  // u8 [B,N]; 1 = real
  // Each block's activations are computed again in backward instead of kept: the same bits.
  bool recompute = false;
  DecoderState* state = nullptr;  // of decoders: ids continue what it holds
};

struct TransformerOutput {
  Var hidden;            // [B,N,C] behind the final norm
  std::vector<Var> aux;  // auxiliary terms of the attention methods, in layer order
};

// Parameter paths, weights [out, in]:
//   wte.weight [V,C], wpe.weight [block_size,C] (learned positions),
//   blocks.N.norm1.{weight,bias}, blocks.N.attn.* (multi_head_attention.h), blocks.N.norm2.*,
//   blocks.N.mlp.{fc | gate_up, proj}.{weight,bias}, norm_f.*; a model's head comes last.
class Transformer : public nn::Module {
 public:
  // Throws ShapeError for ids that are not [B,N], and where learned positions end: unless
  // model.interpolate_positions, nothing is decoded and nothing recorded.
  TransformerOutput forward(Ctx& ctx, const TransformerInput& in);

  const ModelConfig& config() const { return config_; }
  Block& block(int layer) { return *blocks_[static_cast<std::size_t>(layer)]; }
  const Block& block(int layer) const { return *blocks_[static_cast<std::size_t>(layer)]; }
  // Weights of the blocks that take part in a product of every token.
  std::int64_t block_parameters() const;

 protected:
  explicit Transformer(const ModelConfig& config);
  nn::Embedding& token_embedding() { return *wte_; }
  const std::vector<Block*>& blocks() const { return blocks_; }

 private:
  // `whole`: ids are all of the sequence, up to `end`.
  Var embed(Ctx& ctx, const Tensor& ids, const Tensor& positions, std::int64_t end, bool whole);
  Var position_table(Ctx& ctx, std::int64_t end, bool whole);
  Var stretched_positions(Ctx& ctx, std::int64_t length);

  ModelConfig config_;
  nn::Embedding* wte_ = nullptr;
  nn::Embedding* wpe_ = nullptr;  // null unless positions are learned
  std::vector<Block*> blocks_;
  nn::Norm* norm_f_ = nullptr;
  // Made when first needed, and another one when a longer sequence comes. None goes while the model
  // lives: a captured step keeps its table's address.
  std::vector<Tensor> sinusoids_;
  // How learned positions are stretched over a length: the two rows that each token lies between,
  // i32 [1,N], and their shares [1,N,C]. The last one that was needed.
  struct Stretch {
    Tensor low, high, low_share, high_share;
  } stretch_;
};

}  // namespace fovea::models
