#include "models/encoder.h"

#include <memory>
#include <utility>

#include "autograd/ops/pool.h"

namespace fovea::models {

namespace {

Pool rule_of(Pooling pooling) {
  switch (pooling) {
    case Pooling::cls:
      return Pool::first;
    case Pooling::mean:
      return Pool::mean;
    case Pooling::last:
      return Pool::last;
  }
  return Pool::mean;
}

}  // namespace

Encoder::Encoder(const ModelConfig& config) : Transformer(config) {
  head_ = &child(
      "head", std::make_unique<nn::Linear>(config.n_embd, config.classes, true, config.init_std));
}

Var Encoder::classify(Ctx& ctx, const Var& hidden, const Tensor& key_valid) {
  return head_->forward(ctx, pool(ctx, hidden, key_valid, rule_of(config().pool)));
}

Var Encoder::logits(Ctx& ctx, const TransformerInput& in) {
  return classify(ctx, forward(ctx, in).hidden, in.key_valid);
}

EncoderLoss Encoder::loss(Ctx& ctx, const TransformerInput& in, const Tensor& labels) {
  TransformerOutput out = forward(ctx, in);
  return {loss_of(ctx, out.hidden, in.key_valid, labels), std::move(out.aux)};
}

CrossEntropy Encoder::loss_of(Ctx& ctx, const Var& hidden, const Tensor& key_valid,
                              const Tensor& labels) {
  return cross_entropy(ctx, classify(ctx, hidden, key_valid), labels);
}

std::int64_t Encoder::head_parameters() const {
  return head_->weight().shape.numel();
}

}  // namespace fovea::models
