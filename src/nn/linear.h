#pragma once
// A weight, perhaps with a bias.

#include <memory>

#include "nn/module.h"

namespace fovea::nn {

// y = x weight^T + bias, with weight [out, in] and bias [out].
class Linear final : public Module {
 public:
  // Owns `weight` (normal with standard deviation `init_std`) and, if `bias`, `bias` (zeros).
  Linear(std::int64_t in, std::int64_t out, bool bias, double init_std);
  // Without bias, on a weight [out, in] that another module owns too (a tied head).
  explicit Linear(std::shared_ptr<Parameter> weight);

  Var forward(Ctx& ctx, const Var& x);       // x [..., in] -> [..., out]
  Var forward_gelu(Ctx& ctx, const Var& x);  // gelu of the same, fused
  Parameter& weight() { return weight_; }
  Var bias() const;  // undefined: none

 private:
  Parameter& weight_;
  Parameter* bias_;  // null: none
};

}  // namespace fovea::nn
