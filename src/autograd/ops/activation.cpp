#include "autograd/ops/activation.h"

#include <utility>

#include "autograd/require.h"
#include "autograd/tape.h"
#include "core/text.h"
#include "kernels/activation.h"

namespace fovea {

Var gelu(Ctx& ctx, const Var& x) {
  require_float("gelu", "x", x.value());
  const Tensor xv = contiguous(ctx, x.value());
  const Tensor y = ctx.empty_like(xv);
  FOVEA_ON(ctx.device, gelu_forward(ctx.stream.ref(), y.view(), xv.view()));
  auto backward = [xv, gx = x.grad()](Ctx& c, std::span<const Tensor> dout) {
    const Tensor dy = contiguous(c, dout[0]), dx = c.empty_like(xv);
    FOVEA_ON(c.device, gelu_backward(c.stream.ref(), dx.view(), dy.view(), xv.view()));
    give(c, gx, dx);
  };
  return finish(ctx, "gelu", y, {x.grad()}, std::move(backward));
}

Var swiglu(Ctx& ctx, const Var& x) {
  require_float("swiglu", "x", x.value());
  if (x.value().rank() == 0 || x.size(-1) % 2 != 0) {
    throw ShapeError(cat("swiglu: x is ", x.shape().str(),
                         ", but its last axis must hold a gate and a value of equal width"));
  }
  const Tensor xv = contiguous(ctx, x.value());
  const Tensor y = ctx.empty(x.shape().with_cols(x.size(-1) / 2), x.dtype());
  FOVEA_ON(ctx.device, swiglu_forward(ctx.stream.ref(), y.view(), xv.view()));
  auto backward = [xv, gx = x.grad()](Ctx& c, std::span<const Tensor> dout) {
    const Tensor dy = contiguous(c, dout[0]), dx = c.empty_like(xv);
    FOVEA_ON(c.device, swiglu_backward(c.stream.ref(), dx.view(), dy.view(), xv.view()));
    give(c, gx, dx);
  };
  return finish(ctx, "swiglu", y, {x.grad()}, std::move(backward));
}

Var softmax(Ctx& ctx, const Var& x) {
  require_float("softmax", "x", x.value());
  const Tensor xv = contiguous(ctx, x.value());
  const Tensor y = ctx.empty_like(xv);
  FOVEA_ON(ctx.device, softmax_forward(ctx.stream.ref(), y.view(), xv.view()));
  auto backward = [y, gx = x.grad()](Ctx& c, std::span<const Tensor> dout) {
    const Tensor dy = contiguous(c, dout[0]), dx = c.empty_like(y);
    FOVEA_ON(c.device, softmax_backward(c.stream.ref(), dx.view(), dy.view(), y.view()));
    give(c, gx, dx);
  };
  return finish(ctx, "softmax", y, {x.grad()}, std::move(backward));
}

Var dropout(Ctx& ctx, const Var& x, double p, const Key& key) {
  require_float("dropout", "x", x.value());
  if (!(p >= 0 && p < 1)) throw ConfigError(cat("dropout: p is ", p, ", but must be in [0, 1)"));
  if (!ctx.training || p == 0) return x;
  const Tensor xv = contiguous(ctx, x.value());
  const Tensor y = ctx.empty_like(xv);
  FOVEA_ON(ctx.device, dropout_forward(ctx.stream.ref(), y.view(), xv.view(), p, key));
  auto backward = [p, key, gx = x.grad()](
                      Ctx& c, std::span<const Tensor> dout) {  // the mask is drawn again
    const Tensor dy = contiguous(c, dout[0]), dx = c.empty_like(dy);
    FOVEA_ON(c.device, dropout_forward(c.stream.ref(), dx.view(), dy.view(), p, key));
    give(c, gx, dx);
  };
  return finish(ctx, "dropout", y, {x.grad()}, std::move(backward));
}

}  // namespace fovea
