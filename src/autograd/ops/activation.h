#pragma once
// Element-wise nonlinearities and dropout.

#include "autograd/ctx.h"
#include "autograd/var.h"

namespace fovea {

// 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), any shape.
Var gelu(Ctx& ctx, const Var& x);
// silu(gate) * up with x = [gate | up] along the last axis: x [..., 2 F], out [..., F]. Shazeer
// 2020.
Var swiglu(Ctx& ctx, const Var& x);
// Keeps each element with probability 1 - p and divides it by 1 - p; the identity if !ctx.training
// or p = 0. Axis 0 counts samples: the random number of an element depends on its global sample
// (key.at), so micro-batch cuts do not matter. p in [0, 1).
Var dropout(Ctx& ctx, const Var& x, double p, const Key& key);
// Softmax over the last axis.
Var softmax(Ctx& ctx, const Var& x);

}  // namespace fovea
