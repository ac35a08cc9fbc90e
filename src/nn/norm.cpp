#include "nn/norm.h"

namespace fovea::nn {

Norm::Norm(std::int64_t width, const NormConfig& config)
    : config_(config),
      weight_(own("weight", {width}, Init::ones())),
      bias_(config.kind == NormConfig::Kind::layer && config.bias
                ? &own("bias", {width}, Init::zeros())
                : nullptr) {}

Var Norm::bias() const {
  return bias_ == nullptr ? Var() : bias_->var();
}

Var Norm::forward(Ctx& ctx, const Var& x) {
  if (config_.kind == NormConfig::Kind::rms) return rms_norm(ctx, x, weight_.var(), config_.eps);
  return layer_norm(ctx, x, weight_.var(), bias(), config_.eps);
}

ResidualNorm Norm::forward(Ctx& ctx, const Var& x, const Var& branch) {
  if (config_.kind == NormConfig::Kind::rms) {
    return residual_rms_norm(ctx, x, branch, weight_.var(), config_.eps);
  }
  return residual_layer_norm(ctx, x, branch, weight_.var(), bias(), config_.eps);
}

}  // namespace fovea::nn
