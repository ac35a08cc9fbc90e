#pragma once
// Where kernels that accumulate a gradient write it: a parameter has a buffer of its own; anything
// else (a weight that is itself computed) gets a zeroed one for the moment.
//
//   const Tensor dw = grad_buffer(c, gw, wv.shape(), wv.dtype());
//   FOVEA_ON(c.device, layer_norm_backward(..., dw.view(), ...));  // adds
//   give_buffer(c, gw, dw, wv.dtype());

#include "autograd/ctx.h"
#include "autograd/tape.h"
#include "autograd/var.h"

namespace fovea {

// The parameter's own buffer; a zeroed temporary of acc(dtype) if `to` is no parameter; undefined
// (an empty view) if `to` is null. `shape` and `dtype` are those of the value.
Tensor grad_buffer(Ctx& ctx, const GradRef& to, Shape shape, DType dtype);

// After the kernel: a temporary is rounded to the value's dtype (unless Grad::unrounded) and given;
// a parameter needs nothing.
void give_buffer(Ctx& ctx, const GradRef& to, Tensor buffer, DType dtype);

}  // namespace fovea
