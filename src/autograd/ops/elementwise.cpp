#include "autograd/ops/elementwise.h"

#include <utility>

#include "autograd/require.h"
#include "autograd/tape.h"
#include "kernels/basic.h"

namespace fovea {

Var add(Ctx& ctx, const Var& a, const Var& b) {
  require_float("add", "a", a.value());
  require_tensor("add", "b", b.value(), a.shape(), a.dtype());
  const Tensor av = contiguous(ctx, a.value()), bv = contiguous(ctx, b.value());
  const Tensor out = ctx.empty_like(av);
  FOVEA_ON(ctx.device, add_forward(ctx.stream.ref(), out.view(), av.view(), bv.view()));
  auto backward = [ga = a.grad(), gb = b.grad()](Ctx& c, std::span<const Tensor> dout) {
    give(c, ga, dout[0]);
    give(c, gb, dout[0]);
  };
  return finish(ctx, "add", out, {a.grad(), b.grad()}, std::move(backward));
}

Var mul(Ctx& ctx, const Var& a, const Var& b) {
  require_float("mul", "a", a.value());
  require_tensor("mul", "b", b.value(), a.shape(), a.dtype());
  const Tensor av = contiguous(ctx, a.value()), bv = contiguous(ctx, b.value());
  const Tensor out = ctx.empty_like(av);
  FOVEA_ON(ctx.device, mul_forward(ctx.stream.ref(), out.view(), av.view(), bv.view()));
  // Each factor is kept only for the other's gradient.
  auto backward = [av = b.grad() ? av : Tensor(), bv = a.grad() ? bv : Tensor(), ga = a.grad(),
                   gb = b.grad()](Ctx& c, std::span<const Tensor> dout) {
    const Tensor dy = contiguous(c, dout[0]);
    const auto times = [&](const Tensor& other) {
      Tensor product = c.empty_like(dy);
      FOVEA_ON(c.device, mul_forward(c.stream.ref(), product.view(), dy.view(), other.view()));
      return product;
    };
    if (ga) give(c, ga, times(bv));
    if (gb) give(c, gb, times(av));
  };
  return finish(ctx, "mul", out, {a.grad(), b.grad()}, std::move(backward));
}

Var scale(Ctx& ctx, const Var& x, double alpha) {
  require_float("scale", "x", x.value());
  const Tensor xv = contiguous(ctx, x.value());
  const Tensor out = ctx.empty_like(xv);
  FOVEA_ON(ctx.device, scale_forward(ctx.stream.ref(), out.view(), xv.view(), alpha));
  auto backward = [alpha, gx = x.grad()](Ctx& c, std::span<const Tensor> dout) {
    const Tensor dy = contiguous(c, dout[0]), dx = c.empty_like(dy);
    FOVEA_ON(c.device, scale_forward(c.stream.ref(), dx.view(), dy.view(), alpha));
    give(c, gx, dx);
  };
  return finish(ctx, "scale", out, {x.grad()}, std::move(backward));
}

Var sum(Ctx& ctx, const Var& x) {
  require_float("sum", "x", x.value());
  const Tensor xv = contiguous(ctx, x.value());
  const Tensor out = ctx.empty({}, acc_of(x.dtype()));
  FOVEA_ON(ctx.device, sum_forward(ctx.stream.ref(), out.view(), xv.view()));
  auto backward = [shape = x.shape(), dtype = x.dtype(), gx = x.grad()](
                      Ctx& c, std::span<const Tensor> dout) {
    const Tensor dx = c.empty(shape, dtype, "sum");
    FOVEA_ON(c.device, fill_by(c.stream.ref(), dx.view(), dout[0].view()));
    give(c, gx, dx);
  };
  return finish(ctx, "sum", out, {x.grad()}, std::move(backward));
}

Var cast(Ctx& ctx, const Var& x, DType dtype) {
  require_float("cast", "x", x.value());
  if (x.dtype() == dtype) return x;
  const Tensor out = ctx.empty(x.shape(), dtype);
  require_float("cast", "the result", out);
  FOVEA_ON(ctx.device, copy(ctx.stream.ref(), out.view(), x.view()));
  auto backward = [from = x.dtype(), gx = x.grad()](Ctx& c, std::span<const Tensor> dout) {
    const Tensor dx = c.empty(dout[0].shape(), from, "cast");
    FOVEA_ON(c.device, copy(c.stream.ref(), dx.view(), dout[0].view()));
    give(c, gx, dx);
  };
  return finish(ctx, "cast", out, {x.grad()}, std::move(backward));
}

}  // namespace fovea
