#include "nn/linear.h"

#include <utility>

#include "autograd/ops/linear.h"

namespace fovea::nn {

Linear::Linear(std::int64_t in, std::int64_t out, bool bias, double init_std)
    : weight_(own("weight", {out, in}, Init::normal(init_std))),
      bias_(bias ? &own("bias", {out}, Init::zeros()) : nullptr) {}

Linear::Linear(std::shared_ptr<Parameter> weight)
    : weight_(share("weight", std::move(weight))), bias_(nullptr) {}

Var Linear::bias() const {
  return bias_ == nullptr ? Var() : bias_->var();
}

Var Linear::forward(Ctx& ctx, const Var& x) {
  return linear(ctx, x, weight_.var(), bias());
}

Var Linear::forward_gelu(Ctx& ctx, const Var& x) {
  return linear_gelu(ctx, x, weight_.var(), bias());
}

}  // namespace fovea::nn
