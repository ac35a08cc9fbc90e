#include "nn/mlp.h"

#include <memory>

#include "autograd/ops/activation.h"

namespace fovea::nn {

Mlp::Mlp(const MlpConfig& config)
    : config_(config),
      inner_(config.kind == MlpConfig::Kind::gelu
                 ? child("fc", std::make_unique<Linear>(config.width, config.hidden, config.bias,
                                                        config.init_std))
                 : child("gate_up", std::make_unique<Linear>(config.width, 2 * config.hidden,
                                                             config.bias, config.init_std))),
      proj_(child("proj", std::make_unique<Linear>(config.hidden, config.width, config.bias,
                                                   config.proj_std))) {}

Var Mlp::forward(Ctx& ctx, const Var& x) {
  if (config_.kind == MlpConfig::Kind::gelu) {
    return proj_.forward(ctx, inner_.forward_gelu(ctx, x));
  }
  return proj_.forward(ctx, swiglu(ctx, inner_.forward(ctx, x)));
}

std::int64_t Mlp::matmul_parameters() const {
  return inner_.weight().shape.numel() + proj_.weight().shape.numel();
}

}  // namespace fovea::nn
