// split_tokens, join_tokens and repeat_samples of low_rank.h.

#include "autograd/ops/low_rank.h"
#include "autograd/require.h"
#include "autograd/tape.h"
#include "core/error.h"
#include "core/text.h"
#include "kernels/basic.h"
#include "kernels/bias.h"

namespace fovea {

namespace {

// [B,H,N,D] as [B G, H, N / G, D]; a copy unless samples lie behind each other as tokens do.
Tensor split(Ctx& ctx, const Tensor& x, std::int64_t groups, const char* op) {
  const bool lies_so = x.size(0) == 1 || x.strides()[0] == x.size(2) * x.strides()[2];
  const Tensor from =
      lies_so ? x : contiguous(ctx, x.permute({0, 2, 1, 3}), op).permute({0, 2, 1, 3});
  return from.split_axis(2, x.size(2) / groups).permute({0, 2, 1, 3, 4}).merge_axes(0);
}

// The way back; a copy unless the tokens of a group lie apart as the groups do.
Tensor join(Ctx& ctx, const Tensor& x, std::int64_t groups, const char* op) {
  // [B,G,H,n,D]
  const Tensor apart = x.permute({1, 2, 3, 0}).split_axis(3, groups).permute({3, 4, 0, 1, 2});
  const bool lies_so = groups == 1 || apart.strides()[1] == x.size(2) * apart.strides()[3];
  const Tensor from =
      lies_so ? apart
              : contiguous(ctx, apart.permute({0, 1, 3, 2, 4}), op).permute({0, 1, 3, 2, 4});
  return from.permute({0, 2, 1, 3, 4}).merge_axes(2);
}

void require_groups(const char* op, const Var& x, int axis, std::int64_t groups) {
  require_float(op, "x", x.value());
  const bool fits = x.shape().rank() == 4 && groups > 0 && x.size(axis) % groups == 0;
  if (!fits)
    throw ShapeError(cat(op, ": x is ", x.shape().str(), ", but must be [B,H,N,D] with axis ", axis,
                         " a multiple of ", groups, " groups"));
}

}  // namespace

Var split_tokens(Ctx& ctx, const Var& x, std::int64_t groups) {
  constexpr const char* kOp = "split_tokens";
  require_groups(kOp, x, 2, groups);
  auto backward = [groups, gx = x.grad()](Ctx& c, std::span<const Tensor> dout) {
    give(c, gx, join(c, dout[0], groups, kOp));
  };
  return finish(ctx, kOp, split(ctx, x.value(), groups, kOp), {x.grad()}, std::move(backward));
}

Var join_tokens(Ctx& ctx, const Var& x, std::int64_t groups) {
  constexpr const char* kOp = "join_tokens";
  require_groups(kOp, x, 0, groups);
  auto backward = [groups, gx = x.grad()](Ctx& c, std::span<const Tensor> dout) {
    give(c, gx, split(c, dout[0], groups, kOp));
  };
  return finish(ctx, kOp, join(ctx, x.value(), groups, kOp), {x.grad()}, std::move(backward));
}

Var repeat_samples(Ctx& ctx, const Var& x, std::int64_t groups) {
  constexpr const char* kOp = "repeat_samples";
  require_float(kOp, "x", x.value());
  if (x.shape().rank() < 1 || groups < 1)
    throw ShapeError(cat(kOp, ": x is ", x.shape().str(), " for ", groups, " groups"));
  const Tensor from = contiguous(ctx, x.value(), kOp);
  const std::int64_t batch = x.size(0), each = batch > 0 ? x.numel() / batch : 0;
  Shape shape = x.shape();
  shape[0] *= groups;
  const Tensor out = ctx.empty(shape, x.dtype());
  View again = from.reshape({batch, 1, each}).view();
  again.dim[1] = groups;
  again.stride[1] = 0;
  FOVEA_ON(ctx.device, copy(ctx.stream.ref(), out.reshape({batch, groups, each}).view(), again));
  auto backward = [groups, batch, each, before = x.shape(), gx = x.grad()](
                      Ctx& c, std::span<const Tensor> dout) {
    const Tensor d = contiguous(c, dout[0], kOp).reshape({batch, groups, each});
    const Tensor sums = c.zeros({batch, each}, acc_of(d.dtype()), kOp);
    for (std::int64_t b = 0; b < batch; ++b) {
      FOVEA_ON(c.device, column_sum(c.stream.ref(), sums.slice(0, b, b + 1).reshape({each}).view(),
                                    d.slice(0, b, b + 1).reshape({groups, each}).view()));
    }
    Tensor dx = sums;
    if (d.dtype() != sums.dtype()) {
      dx = c.empty(sums.shape(), d.dtype(), kOp);
      FOVEA_ON(c.device, copy(c.stream.ref(), dx.view(), sums.view()));
    }
    give(c, gx, dx.reshape(before));
  };
  return finish(ctx, kOp, out, {x.grad()}, std::move(backward));
}

}  // namespace fovea
