#pragma once
// Matrix products.

#include "autograd/ctx.h"
#include "autograd/var.h"

namespace fovea {

// y = x w^T + b.   x [..., in], w [out, in], b [out] or undefined; y [..., out] in x's dtype.
// f32 accumulation; dw and db are accumulated in the parameter's buffer. Rows do not see each
// other: a row's bits do not depend on how many rows there are. Throws ShapeError.
Var linear(Ctx& ctx, const Var& x, const Var& w, const Var& b);

// gelu(x w^T + b), tanh form; saves the pre-activation. The composition: gelu(linear(x, w, b)).
Var linear_gelu(Ctx& ctx, const Var& x, const Var& w, const Var& b);

// Batched product over the leading axes, which agree: a [..., m, k] (transpose_a: [..., k, m]),
// b [..., k, n] (transpose_b: [..., n, k]); out [..., m, n] in a's dtype. Throws ShapeError.
Var bmm(Ctx& ctx, const Var& a, const Var& b, bool transpose_a = false, bool transpose_b = false);

}  // namespace fovea
