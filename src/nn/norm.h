#pragma once
// Normalisation over the last axis.

#include "autograd/ops/norm.h"
#include "nn/module.h"

namespace fovea::nn {

struct NormConfig {
  enum class Kind { layer, rms };
  Kind kind = Kind::layer;
  double eps = 1e-5;
  bool bias = true;  // layer only
};

// `weight` [width], ones; `bias` [width], zeros, for a layer norm with bias.
class Norm final : public Module {
 public:
  Norm(std::int64_t width, const NormConfig& config);

  Var forward(Ctx& ctx, const Var& x);  // x [..., width]
  // The residual sum x + branch and its norm, in one pass.
  ResidualNorm forward(Ctx& ctx, const Var& x, const Var& branch);

 private:
  Var bias() const;

  NormConfig config_;
  Parameter& weight_;
  Parameter* bias_;  // null: none
};

}  // namespace fovea::nn
