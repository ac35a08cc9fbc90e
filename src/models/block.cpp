#include "models/block.h"

#include "autograd/ops/activation.h"

namespace fovea::models {

Block::Block(const BlockConfig& config, const attention::AttentionSpec& spec,
             const config::Node& options)
    : dropout_(config.dropout),
      norm1_(child("norm1", std::make_unique<nn::Norm>(config.mlp.width, config.norm))),
      attention_(
          child("attn", std::make_unique<MultiHeadAttention>(config.attention, spec, options))),
      norm2_(child("norm2", std::make_unique<nn::Norm>(config.mlp.width, config.norm))),
      mlp_(child("mlp", std::make_unique<nn::Mlp>(config.mlp))) {}

BlockStream Block::forward(Ctx& ctx, const BlockStream& x, const ForwardInput& in) {
  const ResidualNorm first = x.branch.defined()
                                 ? norm1_.forward(ctx, x.residual, x.branch)
                                 : ResidualNorm{x.residual, norm1_.forward(ctx, x.residual)};
  const MultiHeadAttention::Output attended = attention_.forward(ctx, first.norm, in);
  const Var mixed = dropout(ctx, attended.y, dropout_, ctx.key(attention_.path() + ".dropout"));
  const ResidualNorm second = norm2_.forward(ctx, first.sum, mixed);
  const Var fed = mlp_.forward(ctx, second.norm);
  // The next block's norm must not add its column sums: a recomputed block could not hear of it,
  // and recomputing changes no bit.
  if (fed.grad()) fed.grad()->column_sums = nullptr;
  return {second.sum, dropout(ctx, fed, dropout_, ctx.key(mlp_.path() + ".dropout")), attended.aux};
}

std::int64_t Block::matmul_parameters() const {
  return attention_.matmul_parameters() + mlp_.matmul_parameters();
}

}  // namespace fovea::models
