#include "autograd/ops/norm.h"

#include <utility>

#include "autograd/ops/elementwise.h"
#include "autograd/param_grad.h"
#include "autograd/require.h"
#include "autograd/tape.h"
#include "core/text.h"
#include "kernels/norm.h"

namespace fovea {

namespace {

// One call, as its backward needs it. RMS norm has no mean, and neither norm needs beta again.
struct Saved {
  Tensor x, gamma, mean, rstd;
  GradRef dgamma, dbeta;
};

void require_norm(std::string_view op, const Var& x, const Var& gamma, const Var& beta) {
  require_float(op, "x", x.value());
  if (x.value().rank() == 0) throw ShapeError(cat(op, ": x is a scalar, but needs a last axis"));
  require_tensor(op, "gamma", gamma.value(), {x.size(-1)}, x.dtype());
  if (beta.defined()) require_tensor(op, "beta", beta.value(), {x.size(-1)}, x.dtype());
}

// Fills saved.mean and saved.rstd, and returns the norm. `x` and `branch` are contiguous; `sum` and
// `branch` are undefined where nothing is added.
Tensor layer_norm_of(Ctx& ctx, const char* op, Saved& saved, const Tensor& sum, const Tensor& x,
                     const Tensor& branch, const Tensor& beta, double eps) {
  Tensor y = ctx.empty(x.shape(), x.dtype(), op);
  saved.mean = ctx.empty(x.shape().without_cols(), acc_of(x.dtype()), op);
  saved.rstd = ctx.empty(x.shape().without_cols(), acc_of(x.dtype()), op);
  FOVEA_ON(ctx.device, layer_norm_forward(ctx.stream.ref(), y.view(), saved.mean.view(),
                                          saved.rstd.view(), sum.view(), x.view(), branch.view(),
                                          saved.gamma.view(), beta.view(), eps));
  return y;
}

Tensor rms_norm_of(Ctx& ctx, const char* op, Saved& saved, const Tensor& sum, const Tensor& x,
                   const Tensor& branch, double eps) {
  Tensor y = ctx.empty(x.shape(), x.dtype(), op);
  saved.rstd = ctx.empty(x.shape().without_cols(), acc_of(x.dtype()), op);
  FOVEA_ON(ctx.device, rms_norm_forward(ctx.stream.ref(), y.view(), saved.rstd.view(), sum.view(),
                                        x.view(), branch.view(), saved.gamma.view(), eps));
  return y;
}

// Accumulates the parameters' gradients and returns that of the normalised tensor, `dsum` included;
// undefined if nobody wants it.
Tensor backward_of(Ctx& c, const Saved& saved, const Tensor& dout, const Tensor& dsum,
                   bool dx_wanted, const GradRef& branch_bias = nullptr) {
  const Tensor dy = contiguous(c, dout), past = contiguous(c, dsum);
  Tensor dx = dx_wanted ? c.empty_like(saved.x) : Tensor();
  const Shape width{saved.x.size(-1)};
  const DType dtype = saved.x.dtype();
  const Tensor dgamma = grad_buffer(c, saved.dgamma, width, dtype),
               dbeta = grad_buffer(c, saved.dbeta, width, dtype);
  const Tensor dbias = grad_buffer(c, branch_bias, width, dtype);
  if (saved.mean.defined()) {
    FOVEA_ON(c.device,
             layer_norm_backward(c.stream.ref(), dx.view(), dgamma.view(), dbeta.view(), dy.view(),
                                 past.view(), saved.x.view(), saved.gamma.view(), saved.mean.view(),
                                 saved.rstd.view(), dbias.view()));
  } else {
    FOVEA_ON(c.device, rms_norm_backward(c.stream.ref(), dx.view(), dgamma.view(), dy.view(),
                                         past.view(), saved.x.view(), saved.gamma.view(),
                                         saved.rstd.view(), dbias.view()));
  }
  give_buffer(c, branch_bias, dbias, dtype);
  give_buffer(c, saved.dgamma, dgamma, dtype);
  give_buffer(c, saved.dbeta, dbeta, dtype);
  return dx;
}

Var finish_norm(Ctx& ctx, const char* op, const Var& x, const Tensor& y, const Saved& saved) {
  std::initializer_list<GradRef> inputs = {x.grad(), saved.dgamma, saved.dbeta};
  auto backward = [saved, gx = x.grad()](Ctx& c, std::span<const Tensor> dout) {
    give(c, gx, backward_of(c, saved, dout[0], {}, gx != nullptr));
  };
  return finish(ctx, op, y, inputs, std::move(backward));
}

// The bias whose gradient is the column sums of dx, if the branch is such a product's and dx is the
// whole of its gradient; the product is told.
GradRef owed_bias(const GradRef& branch) {
  if (!branch || !branch->column_sums || branch->uses != 1 || branch->value.defined()) return {};
  branch->column_sums->given = true;
  return branch->column_sums->to;
}

ResidualNorm finish_residual(Ctx& ctx, const char* op, const Var& x, const Var& branch,
                             const Tensor& y, const Saved& saved) {
  std::initializer_list<GradRef> inputs = {x.grad(), branch.grad(), saved.dgamma, saved.dbeta};
  const Tensor outs[] = {saved.x, y};
  auto backward = [saved, gx = x.grad(), gb = branch.grad()](Ctx& c, std::span<const Tensor> dout) {
    const Tensor dsum = dout[1].defined()
                            ? backward_of(c, saved, dout[1], dout[0], gx || gb, owed_bias(gb))
                            : dout[0];
    give(c, gx, dsum);
    give(c, gb, dsum);
  };
  const std::vector<Var> both = finish(ctx, op, outs, inputs, std::move(backward));
  return {both[0], both[1]};
}

}  // namespace

Var layer_norm(Ctx& ctx, const Var& x, const Var& gamma, const Var& beta, double eps) {
  require_norm("layer_norm", x, gamma, beta);
  Saved saved{contiguous(ctx, x.value()), gamma.value(), {}, {}, gamma.grad(), beta.grad()};
  const Tensor y = layer_norm_of(ctx, "layer_norm", saved, {}, saved.x, {}, beta.value(), eps);
  return finish_norm(ctx, "layer_norm", x, y, saved);
}

Var rms_norm(Ctx& ctx, const Var& x, const Var& gamma, double eps) {
  require_norm("rms_norm", x, gamma, Var());
  Saved saved{contiguous(ctx, x.value()), gamma.value(), {}, {}, gamma.grad(), nullptr};
  const Tensor y = rms_norm_of(ctx, "rms_norm", saved, {}, saved.x, {}, eps);
  return finish_norm(ctx, "rms_norm", x, y, saved);
}

ResidualNorm residual_layer_norm(Ctx& ctx, const Var& x, const Var& branch, const Var& gamma,
                                 const Var& beta, double eps) {
  if (!ctx.fuse) {
    const Var sum = add(ctx, x, branch);
    return {sum, layer_norm(ctx, sum, gamma, beta, eps)};
  }
  require_norm("residual_layer_norm", x, gamma, beta);
  require_tensor("residual_layer_norm", "branch", branch.value(), x.shape(), x.dtype());
  Saved saved{ctx.empty(x.shape(), x.dtype()), gamma.value(), {}, {}, gamma.grad(), beta.grad()};
  const Tensor y =
      layer_norm_of(ctx, "residual_layer_norm", saved, saved.x, contiguous(ctx, x.value()),
                    contiguous(ctx, branch.value()), beta.value(), eps);
  return finish_residual(ctx, "residual_layer_norm", x, branch, y, saved);
}

ResidualNorm residual_rms_norm(Ctx& ctx, const Var& x, const Var& branch, const Var& gamma,
                               double eps) {
  if (!ctx.fuse) {
    const Var sum = add(ctx, x, branch);
    return {sum, rms_norm(ctx, sum, gamma, eps)};
  }
  require_norm("residual_rms_norm", x, gamma, Var());
  require_tensor("residual_rms_norm", "branch", branch.value(), x.shape(), x.dtype());
  Saved saved{ctx.empty(x.shape(), x.dtype()), gamma.value(), {}, {}, gamma.grad(), nullptr};
  const Tensor y = rms_norm_of(ctx, "residual_rms_norm", saved, saved.x, contiguous(ctx, x.value()),
                               contiguous(ctx, branch.value()), eps);
  return finish_residual(ctx, "residual_rms_norm", x, branch, y, saved);
}

}  // namespace fovea
