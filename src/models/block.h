#pragma once
// One pre-norm transformer block.

#include <memory>

#include "models/multi_head_attention.h"
#include "nn/mlp.h"
#include "nn/norm.h"

namespace fovea::models {

struct BlockConfig {
  MultiHeadConfig attention;
  nn::NormConfig norm;
  nn::MlpConfig mlp;
  double dropout = 0;  // of both residual branches
};

// What flows between blocks: the residual sum and the branch not yet added to it, so that every
// addition is fused with the norm that follows.
struct BlockStream {
  Var residual;  // [B,N,C]
  Var branch;    // [B,N,C]; undefined before the first block
  Var aux;       // the block's auxiliary term; undefined: none
};

// Parameters: norm1, attn, norm2, mlp.
class Block final : public nn::Module {
 public:
  Block(const BlockConfig& config, const attention::AttentionSpec& spec,
        const config::Node& options);

  BlockStream forward(Ctx& ctx, const BlockStream& x, const ForwardInput& in);
  MultiHeadAttention& attention() { return attention_; }
  const MultiHeadAttention& attention() const { return attention_; }
  std::int64_t matmul_parameters() const;

 private:
  double dropout_;
  nn::Norm& norm1_;
  MultiHeadAttention& attention_;
  nn::Norm& norm2_;
  nn::Mlp& mlp_;
};

}  // namespace fovea::models
