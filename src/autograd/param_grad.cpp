#include "autograd/param_grad.h"

#include <utility>

#include "core/error.h"
#include "kernels/basic.h"

namespace fovea {

Tensor grad_buffer(Ctx& ctx, const GradRef& to, Shape shape, DType dtype) {
  if (!to) return {};
  if (!to->is_parameter) return ctx.zeros(shape, acc_of(dtype), "grad_buffer");
  FOVEA_ASSERT(to->value.defined() && to->value.shape() == shape);
  return to->value;
}

void give_buffer(Ctx& ctx, const GradRef& to, Tensor buffer, DType dtype) {
  if (!to || to->is_parameter) return;
  if (buffer.dtype() != dtype && !to->unrounded) {
    const Tensor rounded = ctx.empty(buffer.shape(), dtype, "grad_buffer");
    FOVEA_ON(ctx.device, copy(ctx.stream.ref(), rounded.view(), buffer.view()));
    buffer = rounded;
  }
  give(ctx, to, std::move(buffer));
}

}  // namespace fovea
