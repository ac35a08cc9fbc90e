#include "autograd/require.h"

#include <string>

#include "core/error.h"
#include "core/text.h"
#include "kernels/basic.h"

namespace fovea {

namespace {

std::string described(const Tensor& x) {
  return x.defined() ? cat(name_of(x.dtype()), " ", x.shape().str()) : "undefined";
}

}  // namespace

void require_float(std::string_view op, std::string_view name, const Tensor& x) {
  if (x.defined() && is_float(x.dtype())) return;
  throw ShapeError(cat(op, ": ", name, " is ", described(x), ", but must be a float"));
}

void require_tensor(std::string_view op, std::string_view name, const Tensor& x, const Shape& shape,
                    DType dtype) {
  if (x.defined() && x.shape() == shape && x.dtype() == dtype) return;
  throw ShapeError(cat(op, ": ", name, " is ", described(x), ", but must be ", name_of(dtype), " ",
                       shape.str()));
}

Tensor contiguous(Ctx& ctx, const Tensor& x, const char* tag) {
  if (!x.defined() || x.is_contiguous()) return x;
  Tensor out = ctx.empty(x.shape(), x.dtype(), tag);
  FOVEA_ON(ctx.device, copy(ctx.stream.ref(), out.view(), x.view()));
  return out;
}

}  // namespace fovea
