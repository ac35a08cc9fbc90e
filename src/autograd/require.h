#pragma once
// What ops ask of their inputs before they take memory or call a kernel.

#include <string_view>

#include "autograd/ctx.h"

namespace fovea {

// Throws ShapeError unless x is defined and of a float dtype: "gelu: x is i32 [2,3], but must be a
// float".
void require_float(std::string_view op, std::string_view name, const Tensor& x);
// Throws ShapeError unless x has this shape and dtype:
// "layer_norm: gamma is f32 [63], but must be f32 [64]".
void require_tensor(std::string_view op, std::string_view name, const Tensor& x, const Shape& shape,
                    DType dtype);

// x itself if it lies row-major without gaps, else such a copy of this step.
Tensor contiguous(Ctx& ctx, const Tensor& x, const char* tag = __builtin_FUNCTION());

}  // namespace fovea
