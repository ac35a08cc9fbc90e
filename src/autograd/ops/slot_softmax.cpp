// slot_softmax and zero_invalid of causal_product.h.

#include <utility>

#include "autograd/ops/causal_product.h"
#include "autograd/require.h"
#include "autograd/tape.h"
#include "core/error.h"
#include "core/text.h"
#include "kernels/chunked.h"
#include "kernels/low_rank.h"

namespace fovea {

SlotSoftmax slot_softmax(Ctx& ctx, const Var& s, const Tensor& valid, DType dtype) {
  constexpr const char* kOp = "slot_softmax";
  if (s.shape().rank() != 4 || s.dtype() != acc_of(dtype))
    throw ShapeError(cat(kOp, ": s is ", name_of(s.dtype()), " ", s.shape().str(), ", but must be ",
                         name_of(acc_of(dtype)), " [B,H,N,R]"));
  if (valid.defined()) require_tensor(kOp, "valid", valid, {s.size(0), s.size(2)}, DType::u8);
  const Tensor scores = contiguous(ctx, s.value(), kOp), p = ctx.empty(s.shape(), dtype, kOp),
               lse = ctx.empty(s.shape().without_cols(), acc_of(dtype), kOp);
  FOVEA_ON(ctx.device, slot_softmax_forward(ctx.stream.ref(), p.view(), lse.view(), scores.view(),
                                            valid.view()));
  auto backward = [p, valid, gs = s.grad()](Ctx& c, std::span<const Tensor> dout) {
    const Tensor dp = contiguous(c, dout[0], kOp), dlse = contiguous(c, dout[1], kOp);
    const Tensor ds = c.empty(p.shape(), p.dtype(), kOp);
    FOVEA_ON(c.device, slot_softmax_backward(c.stream.ref(), ds.view(), dp.view(), dlse.view(),
                                             p.view(), valid.view()));
    give(c, gs, ds);
  };
  const Tensor outs[] = {p, lse};
  std::vector<Var> both = finish(ctx, kOp, outs, {s.grad()}, std::move(backward));
  return {std::move(both[0]), std::move(both[1])};
}

Var zero_invalid(Ctx& ctx, const Var& x, const Tensor& valid) {
  constexpr const char* kOp = "zero_invalid";
  if (!valid.defined()) return x;
  require_float(kOp, "x", x.value());
  if (x.shape().rank() != 4)
    throw ShapeError(cat(kOp, ": x is ", x.shape().str(), ", but must be [B,H,N,D]"));
  require_tensor(kOp, "valid", valid, {x.size(0), x.size(2)}, DType::u8);
  const auto kept = [valid](Ctx& c, const Tensor& from) {
    const Tensor rows = from.strides()[3] == 1 ? from : contiguous(c, from, kOp);
    Tensor out = c.empty(from.shape(), from.dtype(), kOp);
    FOVEA_ON(c.device, keep_valid(c.stream.ref(), out.view(), rows.view(), valid.view()));
    return out;
  };
  auto backward = [kept, gx = x.grad()](Ctx& c, std::span<const Tensor> dout) {
    give(c, gx, kept(c, dout[0]));
  };
  return finish(ctx, kOp, kept(ctx, x.value()), {x.grad()}, std::move(backward));
}

}  // namespace fovea
