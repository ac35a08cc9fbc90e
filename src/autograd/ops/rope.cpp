// The rotary positions of embedding.h.

#include "kernels/rope.h"

#include <utility>

#include "autograd/ops/embedding.h"
#include "autograd/require.h"
#include "autograd/tape.h"
#include "core/error.h"
#include "core/text.h"

namespace fovea {

namespace {

// A contiguous copy of x, rotated.
Tensor rotated(Ctx& ctx, const Tensor& x, const Tensor& positions, const RopeArgs& args) {
  const Tensor rows = x.strides()[3] == 1 ? x : contiguous(ctx, x, "rope");
  Tensor out = ctx.empty(x.shape(), x.dtype(), "rope");
  FOVEA_ON(ctx.device,
           rope_forward(ctx.stream.ref(), out.view(), rows.view(), positions.view(), args));
  return out;
}

}  // namespace

Var rope(Ctx& ctx, const Var& x, const Rope& how, const Tensor& positions, std::int64_t first) {
  require_float("rope", "x", x.value());
  if (x.value().rank() != 4)
    throw ShapeError(cat("rope: x is ", x.shape().str(), ", but must be [B,H,N,D]"));
  const std::int64_t width = how.width == 0 ? x.size(3) : how.width;
  if (width < 0 || width % 2 != 0 || width > x.size(3)) {
    throw ShapeError(
        cat("rope: the rotary width is ", width, ", but must be even and at most ", x.size(3)));
  }
  if (positions.defined())
    require_tensor("rope", "positions", positions, {x.size(0), x.size(2)}, DType::i32);
  const Tensor places = contiguous(ctx, positions);
  RopeArgs args{how.base, first, static_cast<std::int32_t>(width), how.interleaved, false};
  const Tensor out = rotated(ctx, x.value(), places, args);
  args.inverse = true;
  auto backward = [places, args, gx = x.grad()](Ctx& c, std::span<const Tensor> dout) {
    give(c, gx, rotated(c, dout[0], places, args));
  };
  return finish(ctx, "rope", out, {x.grad()}, std::move(backward));
}

}  // namespace fovea
