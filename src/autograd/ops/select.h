#pragma once
// Tokens taken from one of two tensors.

#include "autograd/ctx.h"
#include "autograd/var.h"

namespace fovea {

// Token i of sample b comes from x where mask[b,i] is not 0, else from y; gradients go back the
// same way, and what is not taken gets exactly zero.
//   x, y [B,H,N,D] or [B,H,N], any strides, of one float dtype; mask u8 [1|B, N].
//   returns x's shape, [B,H,N,D] stored as [B,N,H,D] so that merge_heads is free.
// Throws ShapeError.
Var select_rows(Ctx& ctx, const Tensor& mask, const Var& x, const Var& y);

}  // namespace fovea
