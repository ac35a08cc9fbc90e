#include "autograd/ops/linear.h"

#include <memory>
#include <utility>

#include "autograd/ops/activation.h"
#include "autograd/param_grad.h"
#include "autograd/require.h"
#include "autograd/tape.h"
#include "core/error.h"
#include "core/text.h"
#include "kernels/bias.h"
#include "kernels/gemm.h"

namespace fovea {

namespace {

void require_linear(const char* op, const Var& x, const Var& w, const Var& b) {
  const bool shapes = x.shape().rank() >= 1 && w.shape().rank() == 2 &&
                      x.shape().cols() == w.size(1) &&
                      (!b.defined() || b.shape() == Shape{w.size(0)});
  const bool dtypes =
      is_float(x.dtype()) && w.dtype() == x.dtype() && (!b.defined() || b.dtype() == x.dtype());
  if (shapes && dtypes) return;
  const auto text = [](const Var& v) { return cat(v.shape().str(), " ", name_of(v.dtype())); };
  throw ShapeError(cat(op, ": x ", text(x), ", w ", text(w),
                       b.defined() ? cat(", b ", text(b)) : "",
                       "; needed are x [..., in], w [out, in], b [out] of one float dtype"));
}

Tensor as_rows(const Tensor& x) {
  return x.reshape({x.shape().rows(), x.shape().cols()});
}

// dx = dy w, given; dw += dy^T x. dy [rows, out], x [rows, in].
void give_products(Ctx& ctx, const Tensor& dy, const Tensor& x, const Shape& x_shape,
                   const Tensor& w, const GradRef& gx, const GradRef& gw) {
  if (gx) {
    const Tensor dx = ctx.empty(x_shape, w.dtype(), "linear");
    FOVEA_ON(ctx.device,
             gemm(ctx.stream.ref(), as_rows(dx).view(), dy.view(), w.view(), false, false, 0.0));
    give(ctx, gx, dx);
  }
  if (gw) {
    const Tensor dw = grad_buffer(ctx, gw, w.shape(), w.dtype());
    FOVEA_ON(ctx.device, gemm(ctx.stream.ref(), dw.view(), dy.view(), x.view(), true, false, 1.0));
    give_buffer(ctx, gw, dw, w.dtype());
  }
}

}  // namespace

Var linear(Ctx& ctx, const Var& x, const Var& w, const Var& b) {
  require_linear("linear", x, w, b);
  const Tensor rows = as_rows(x.value()), y = ctx.empty(x.shape().with_cols(w.size(0)), x.dtype());
  if (b.defined()) {
    FOVEA_ON(ctx.device, gemm_bias(ctx.stream.ref(), as_rows(y).view(), rows.view(), w.view(),
                                   b.view(), false, true));
  } else {
    FOVEA_ON(ctx.device,
             gemm(ctx.stream.ref(), as_rows(y).view(), rows.view(), w.view(), false, true, 0.0));
  }
  const auto sums =
      b.grad() && ctx.fuse ? std::make_shared<ColumnSums>(ColumnSums{b.grad()}) : nullptr;
  // x is read for dw only.
  auto backward = [rows = w.grad() ? rows : Tensor{}, wv = w.value(), shape = x.shape(),
                   gx = x.grad(), gw = w.grad(), gb = b.grad(),
                   sums](Ctx& c, std::span<const Tensor> dout) {
    const Tensor dy = as_rows(contiguous(c, dout[0]));
    give_products(c, dy, rows, shape, wv, gx, gw);
    if (!gb || (sums && sums->given)) return;
    const Tensor db = grad_buffer(c, gb, {dy.size(1)}, dy.dtype());
    FOVEA_ON(c.device, column_sum(c.stream.ref(), db.view(), dy.view()));
    give_buffer(c, gb, db, dy.dtype());
  };
  Var out = finish(ctx, "linear", y, {x.grad(), w.grad(), b.grad()}, std::move(backward));
  if (out.grad()) out.grad()->column_sums = sums;
  return out;
}

Var linear_gelu(Ctx& ctx, const Var& x, const Var& w, const Var& b) {
  if (!ctx.fuse) return gelu(ctx, linear(ctx, x, w, b));
  require_linear("linear_gelu", x, w, b);
  const Tensor rows = as_rows(x.value()), y = ctx.empty(x.shape().with_cols(w.size(0)), x.dtype());
  const Tensor product = ctx.empty({rows.size(0), w.size(0)}, x.dtype());
  FOVEA_ON(ctx.device,
           gemm(ctx.stream.ref(), product.view(), rows.view(), w.view(), false, true, 0.0));
  FOVEA_ON(ctx.device,
           bias_gelu_forward(ctx.stream.ref(), as_rows(y).view(), product.view(), b.view()));
  auto backward = [rows = w.grad() ? rows : Tensor{}, wv = w.value(), product, bv = b.value(),
                   shape = x.shape(), gx = x.grad(), gw = w.grad(),
                   gb = b.grad()](Ctx& c, std::span<const Tensor> dout) {
    const Tensor dy = as_rows(contiguous(c, dout[0])), dpre = c.empty_like(product);
    const Tensor db = grad_buffer(c, gb, {dy.size(1)}, dy.dtype());
    FOVEA_ON(c.device, bias_gelu_backward(c.stream.ref(), dpre.view(), db.view(), dy.view(),
                                          product.view(), bv.view()));
    give_buffer(c, gb, db, dy.dtype());
    give_products(c, dpre, rows, shape, wv, gx, gw);
  };
  return finish(ctx, "linear_gelu", y, {x.grad(), w.grad(), b.grad()}, std::move(backward));
}

namespace {

// Rows with stride 1 inside and at least their length apart: what the product kernel reads.
Tensor readable(Ctx& ctx, const Tensor& x) {
  const int last = x.rank() - 1;
  const bool rows = x.size(last) == 1 || x.strides()[last] == 1;
  return rows && x.strides()[last - 1] >= x.size(last) ? x : contiguous(ctx, x);
}

// The gradient of one factor: to = op(left) op(right), in the parameter's buffer or a tensor of its
// own.
void give_product(Ctx& ctx, const GradRef& to, const Tensor& like, const Tensor& left,
                  const Tensor& right, bool transpose_left, bool transpose_right) {
  if (!to) return;
  const Tensor product =
      to->is_parameter ? to->value : ctx.empty(like.shape(), like.dtype(), "bmm");
  FOVEA_ON(ctx.device, gemm(ctx.stream.ref(), product.view(), left.view(), right.view(),
                            transpose_left, transpose_right, to->is_parameter ? 1.0 : 0.0));
  if (!to->is_parameter) give(ctx, to, product);
}

// out [..., m, n] of op(a) [..., m, k] op(b) [..., k, n].
Shape bmm_shape(const Tensor& a, const Tensor& b, bool transpose_a, bool transpose_b) {
  const int rank = a.rank();
  bool fits = rank >= 2 && b.rank() == rank && is_float(a.dtype()) && b.dtype() == a.dtype();
  for (int axis = 0; fits && axis < rank - 2; ++axis)
    fits = a.size(axis) == b.size(axis);
  if (!fits) {
    throw ShapeError(cat("bmm: batches or dtypes differ: a ", a.shape().str(), " ",
                         name_of(a.dtype()), ", b ", b.shape().str(), " ", name_of(b.dtype())));
  }
  if (a.size(transpose_a ? -2 : -1) != b.size(transpose_b ? -1 : -2)) {
    throw ShapeError(cat("bmm: inner sizes differ: a ", a.shape().str(),
                         transpose_a ? " transposed" : "", ", b ", b.shape().str(),
                         transpose_b ? " transposed" : ""));
  }
  Shape out = a.shape();
  out[rank - 2] = a.size(transpose_a ? -1 : -2);
  out[rank - 1] = b.size(transpose_b ? -2 : -1);
  return out;
}

}  // namespace

Var bmm(Ctx& ctx, const Var& a, const Var& b, bool transpose_a, bool transpose_b) {
  const Shape shape = bmm_shape(a.value(), b.value(), transpose_a, transpose_b);
  const Tensor av = readable(ctx, a.value()), bv = readable(ctx, b.value());
  const Tensor out = ctx.empty(shape, a.dtype());
  FOVEA_ON(ctx.device,
           gemm(ctx.stream.ref(), out.view(), av.view(), bv.view(), transpose_a, transpose_b, 0.0));
  auto backward = [av, bv, ga = a.grad(), gb = b.grad(), transpose_a, transpose_b](
                      Ctx& c, std::span<const Tensor> dout) {
    const Tensor d = readable(c, dout[0]);
    // dop(a) = d op(b)^T and dop(b) = op(a)^T d, transposed back where the factor was.
    if (transpose_a)
      give_product(c, ga, av, bv, d, transpose_b, true);
    else
      give_product(c, ga, av, d, bv, false, !transpose_b);
    if (transpose_b)
      give_product(c, gb, bv, d, av, true, transpose_a);
    else
      give_product(c, gb, bv, av, d, !transpose_a, false);
  };
  return finish(ctx, "bmm", out, {a.grad(), b.grad()}, std::move(backward));
}

}  // namespace fovea
