#pragma once
// Learned masks of small matrices, and the chance that an entry stays. Source: spa.md 1.6.

#include "autograd/ctx.h"
#include "autograd/var.h"
#include "kernels/learned_mask.h"

namespace fovea {

// W and G [Q,in,out] of acc; shift [P] of acc, or undefined: P = Q. P is a multiple of Q.
struct LearnedMask {
  Var w, g, shift;
  Tensor u;    // f32, as w: uniform numbers; read if rule.sampled
  Tensor tau;  // [1] of acc: the temperature; read if rule.sampled
  Tensor m;    // u8, as w: 1 = not pruned
  MaskRule rule;
  GradRef whole;  // where dS itself goes, as w and summed over the P / Q of a source; null: nowhere
};

// S [P,in,out] = m z(g + shift) w; kernels/learned_mask.h has z. The derivative of a hard mask is
// that of the relaxed one. Throws ShapeError.
Var masked_matrix(Ctx& ctx, const LearnedMask& mask);

// sigmoid(x + shift - per_tau tau): x [Q,...] of acc, shift [P] of acc or undefined (P = Q), tau
// [1] of acc or undefined (then without); y [P,...]. Throws ShapeError.
Var logistic(Ctx& ctx, const Var& x, const Var& shift = {}, const Tensor& tau = {},
             double per_tau = 0);

}  // namespace fovea
