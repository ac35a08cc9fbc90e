#pragma once
// Normalisation over the last axis; statistics in acc(x).

#include "autograd/ctx.h"
#include "autograd/var.h"

namespace fovea {

// gamma * (x - mean) / sqrt(var + eps) + beta. x [..., C], gamma [C], beta [C] or undefined.
Var layer_norm(Ctx& ctx, const Var& x, const Var& gamma, const Var& beta, double eps);
// gamma * x / sqrt(mean(x^2) + eps). x [..., C], gamma [C].
Var rms_norm(Ctx& ctx, const Var& x, const Var& gamma, double eps);

struct ResidualNorm {
  Var sum;   // x + branch
  Var norm;  // the norm of it
};
// Fused residual addition and norm; the compositions: add, then layer_norm or rms_norm.
ResidualNorm residual_layer_norm(Ctx& ctx, const Var& x, const Var& branch, const Var& gamma,
                                 const Var& beta, double eps);
ResidualNorm residual_rms_norm(Ctx& ctx, const Var& x, const Var& branch, const Var& gamma,
                               double eps);

}  // namespace fovea
