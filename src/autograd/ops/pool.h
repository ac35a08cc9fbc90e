#pragma once
// One state for a whole sequence.

#include "autograd/ctx.h"
#include "autograd/var.h"
#include "kernels/pool.h"

namespace fovea {

// The state of token 0, the mean over the real tokens, or the state of the last real one.
//   x [B,N,C], key_valid u8 [B,N] (1 = real) or undefined (all are) -> [B,C] of x's dtype, summed
//   in acc. Without a real token mean and last are zero.
// Throws ShapeError.
Var pool(Ctx& ctx, const Var& x, const Tensor& key_valid, Pool rule);

}  // namespace fovea
