#pragma once
// The feed-forward sublayer.

#include "nn/linear.h"

namespace fovea::nn {

struct MlpConfig {
  enum class Kind { gelu, swiglu };
  Kind kind = Kind::gelu;
  std::int64_t width = 0, hidden = 0;
  bool bias = true;
  double init_std = 0.02, proj_std = 0.02;
};

// gelu: proj(gelu(fc(x))), tanh form. swiglu: proj(silu(gate) * up), where the one product
// `gate_up` [2 hidden, width] holds gate's rows and then up's (Shazeer 2020).
class Mlp final : public Module {
 public:
  explicit Mlp(const MlpConfig& config);

  Var forward(Ctx& ctx, const Var& x);  // x [..., width] -> the same shape
  std::int64_t matmul_parameters() const;

 private:
  MlpConfig config_;
  Linear& inner_;  // fc or gate_up
  Linear& proj_;
};

}  // namespace fovea::nn
