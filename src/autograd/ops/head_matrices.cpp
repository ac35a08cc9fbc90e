// The ops of feature_projection.h that put matrices together, and one factor a head.

#include <utility>

#include "autograd/ops/feature_projection.h"
#include "autograd/param_grad.h"
#include "autograd/require.h"
#include "autograd/tape.h"
#include "core/error.h"
#include "core/text.h"
#include "kernels/basic.h"
#include "kernels/bias.h"
#include "kernels/head_scale.h"

namespace fovea {

Var join_features(Ctx& ctx, const Var& a, const Var& b) {
  const bool fits = a.shape().rank() == 3 && b.shape().rank() == 3 && a.size(0) == b.size(0) &&
                    a.size(1) == b.size(1) && a.dtype() == b.dtype();
  if (!fits) {
    throw ShapeError(cat("join_features: a ", name_of(a.dtype()), " ", a.shape().str(), " and b ",
                         name_of(b.dtype()), " ", b.shape().str(), " do not lie side by side"));
  }
  const std::int64_t cut = a.size(2), end = cut + b.size(2);
  const Tensor out = ctx.empty({a.size(0), a.size(1), end}, a.dtype());
  FOVEA_ON(ctx.device, copy(ctx.stream.ref(), out.slice(2, 0, cut).view(), a.view()));
  FOVEA_ON(ctx.device, copy(ctx.stream.ref(), out.slice(2, cut, end).view(), b.view()));
  auto backward = [cut, end, ga = a.grad(), gb = b.grad()](Ctx& c, std::span<const Tensor> dout) {
    if (ga) give(c, ga, contiguous(c, dout[0].slice(2, 0, cut), "join_features"));
    if (gb) give(c, gb, contiguous(c, dout[0].slice(2, cut, end), "join_features"));
  };
  return finish(ctx, "join_features", out, {a.grad(), b.grad()}, std::move(backward));
}

Var repeat_matrices(Ctx& ctx, const Var& s, std::int64_t count) {
  constexpr const char* kOp = "repeat_matrices";
  const bool fits = s.shape().rank() == 3 && s.size(0) > 0 && count % s.size(0) == 0;
  if (!fits)
    throw ShapeError(cat(kOp, ": s ", s.shape().str(), " cannot become ", count, " matrices"));
  const std::int64_t sources = s.size(0), share = count / sources, size = s.size(1) * s.size(2);
  if (share == 1) return s;
  const Tensor sv = contiguous(ctx, s.value());
  const Tensor out = ctx.empty({count, s.size(1), s.size(2)}, s.dtype());
  View from = sv.view();
  from.rank = 3;
  const std::int64_t dims[] = {sources, share, size}, strides[] = {size, 0, 1};
  for (int i = 0; i < 3; ++i) {
    from.dim[i] = dims[i];
    from.stride[i] = strides[i];
  }
  FOVEA_ON(ctx.device, copy(ctx.stream.ref(), out.reshape({sources, share, size}).view(), from));
  auto backward = [sources, share, size, shape = s.shape(), dtype = s.dtype(), gs = s.grad()](
                      Ctx& c, std::span<const Tensor> dout) {
    const Tensor each = contiguous(c, dout[0], kOp).reshape({sources, share, size}),
                 total = grad_buffer(c, gs, shape, dtype), rows = total.reshape({sources, size});
    for (std::int64_t i = 0; i < sources; ++i) {
      FOVEA_ON(c.device, column_sum(c.stream.ref(), rows.slice(0, i, i + 1).reshape({size}).view(),
                                    each.slice(0, i, i + 1).reshape({share, size}).view()));
    }
    give_buffer(c, gs, total, dtype);
  };
  return finish(ctx, kOp, out, {s.grad()}, std::move(backward));
}

Var scale_heads(Ctx& ctx, const Var& x, const Var& factor) {
  constexpr const char* kOp = "scale_heads";
  require_float(kOp, "x", x.value());
  if (x.shape().rank() != 4)
    throw ShapeError(cat(kOp, ": x is ", x.shape().str(), ", but must be [B,H,N,D]"));
  require_tensor(kOp, "factor", factor.value(), {x.size(1)}, acc_of(x.dtype()));
  const auto readable = [](Ctx& c, const Tensor& t) {
    return t.strides()[3] == 1 || t.size(3) == 1 ? t : contiguous(c, t, kOp);
  };
  const auto output = [](Ctx& c, const Tensor& like) {
    return c.empty({like.size(0), like.size(2), like.size(1), like.size(3)}, like.dtype(), kOp)
        .permute({0, 2, 1, 3});
  };
  const Tensor xv = readable(ctx, x.value()), fv = contiguous(ctx, factor.value(), kOp);
  const Tensor y = output(ctx, xv);
  FOVEA_ON(ctx.device, head_scale_forward(ctx.stream.ref(), y.view(), xv.view(), fv.view()));
  auto backward = [xv = factor.grad() ? xv : Tensor{}, fv, readable, output, gx = x.grad(),
                   gf = factor.grad()](Ctx& c, std::span<const Tensor> dout) {
    const Tensor dy = readable(c, dout[0]);
    if (gf) {
      const Tensor df = grad_buffer(c, gf, fv.shape(), fv.dtype());
      FOVEA_ON(c.device, head_product_sum(c.stream.ref(), df.view(), dy.view(), xv.view()));
      give_buffer(c, gf, df, fv.dtype());
    }
    if (!gx) return;
    const Tensor dx = output(c, dy);
    FOVEA_ON(c.device, head_scale_forward(c.stream.ref(), dx.view(), dy.view(), fv.view()));
    give(c, gx, dx);
  };
  return finish(ctx, kOp, y, {x.grad(), factor.grad()}, std::move(backward));
}

}  // namespace fovea
