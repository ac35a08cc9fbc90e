#include "study/encoder.h"

#include <memory>

#include "attention/registry.h"
#include "autograd/ops/linear.h"
#include "core/error.h"
#include "core/text.h"
#include "kernels/basic.h"
#include "models/build.h"

namespace fovea::study {

namespace {

// The mean over the tokens, as a product: x [B,N,C] -> [B,C].
Var mean_of_tokens(Ctx& ctx, const Var& x) {
  const std::int64_t batch = x.shape()[0], n = x.shape()[1], width = x.shape()[2];
  const Tensor weights = ctx.empty({batch, 1, n}, x.dtype(), "mean_of_tokens");
  FOVEA_ON(ctx.device, fill(ctx.stream.ref(), weights.view(), 1 / static_cast<double>(n)));
  return reshape(ctx, bmm(ctx, Var(weights), x), {batch, width});
}

}  // namespace

Encoder::Encoder(const models::ModelConfig& config, int classes) {
  wte_ = &child("wte",
                std::make_unique<nn::Embedding>(config.vocab_size, config.n_embd, config.init_std));
  wpe_ = &child("wpe",
                std::make_unique<nn::Embedding>(config.block_size, config.n_embd, config.init_std));
  nn::SharedParameters shared;
  for (int layer = 0; layer < config.n_layer; ++layer) {
    const models::ModelConfig::AttentionChoice& choice =
        config.attention[static_cast<std::size_t>(layer)];
    const attention::AttentionSpec* spec = attention::find_attention(choice.kind);
    if (spec == nullptr) throw ConfigError(cat("there is no attention kind '", choice.kind, "'"));
    models::BlockConfig block = models::block_config(config, layer, &shared);
    block.attention.attention.causal = false;
    blocks_.push_back(&child(cat("blocks.", layer),
                             std::make_unique<models::Block>(block, *spec, choice.options)));
  }
  norm_f_ = &child("norm_f", std::make_unique<nn::Norm>(
                                 config.n_embd, models::block_config(config, 0, &shared).norm));
  head_ =
      &child("head", std::make_unique<nn::Linear>(config.n_embd, classes, true, config.init_std));
}

Var Encoder::logits(Ctx& ctx, const Tensor& ids) {
  models::BlockStream x{wte_->forward(ctx, ids, wpe_->weight().var(), {}), {}, {}};
  for (models::Block* block : blocks_)
    x = block->forward(ctx, x, {});
  return head_->forward(ctx, mean_of_tokens(ctx, norm_f_->forward(ctx, x.residual, x.branch).norm));
}

}  // namespace fovea::study
