#include "autograd/ops/select.h"

#include <utility>

#include "autograd/require.h"
#include "autograd/tape.h"
#include "core/error.h"
#include "core/text.h"
#include "kernels/select.h"

namespace fovea {

namespace {

constexpr const char* kOp = "select_rows";

// As the kernel takes it, [B,X,Y,D]: [B,N,H,D] of heads, [B,H,N,1] of one number a token.
Tensor laid_out(Ctx& ctx, const Tensor& x) {
  if (x.rank() == 4) return contiguous(ctx, x.permute({0, 2, 1, 3}), kOp);
  return contiguous(ctx, x, kOp).reshape({x.size(0), x.size(1), x.size(2), 1});
}

Tensor as_given(const Tensor& x, int rank) {
  return rank == 4 ? x.permute({0, 2, 1, 3}) : x.reshape({x.size(0), x.size(1), x.size(2)});
}

// x or y may be undefined: zeros.
Tensor select(Ctx& ctx, const Tensor& mask, const Tensor& x, const Tensor& y) {
  const Tensor& given = x.defined() ? x : y;
  const int rank = given.rank();
  const Tensor a = x.defined() ? laid_out(ctx, x) : x, b = y.defined() ? laid_out(ctx, y) : y;
  const Tensor out = ctx.empty_like(a.defined() ? a : b, kOp);
  const std::int64_t samples = mask.size(0), n = mask.size(1);
  const Tensor spread = rank == 4 ? mask.reshape({samples, n, 1}) : mask.reshape({samples, 1, n});
  FOVEA_ON(ctx.device,
           select_rows(ctx.stream.ref(), out.view(), spread.view(), a.view(), b.view()));
  return as_given(out, rank);
}

}  // namespace

Var select_rows(Ctx& ctx, const Tensor& mask, const Var& x, const Var& y) {
  require_float(kOp, "x", x.value());
  const int rank = x.shape().rank();
  if (rank != 3 && rank != 4)
    throw ShapeError(cat(kOp, ": x is ", x.shape().str(), ", but must be [B,H,N] or [B,H,N,D]"));
  require_tensor(kOp, "y", y.value(), x.shape(), x.dtype());
  const bool one = mask.defined() && mask.rank() == 2 && mask.size(0) == 1;
  require_tensor(kOp, "mask", mask, {one ? 1 : x.size(0), x.size(2)}, DType::u8);
  const Tensor rows = contiguous(ctx, mask, kOp);
  const Tensor out = select(ctx, rows, x.value(), y.value());
  auto backward = [rows, gx = x.grad(), gy = y.grad()](Ctx& c, std::span<const Tensor> dout) {
    if (gx) give(c, gx, select(c, rows, dout[0], {}));
    if (gy) give(c, gy, select(c, rows, {}, dout[0]));
  };
  return finish(ctx, kOp, out, {x.grad(), y.grad()}, std::move(backward));
}

}  // namespace fovea
