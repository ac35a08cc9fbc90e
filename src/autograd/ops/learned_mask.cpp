#include "autograd/ops/learned_mask.h"

#include <utility>

#include "autograd/param_grad.h"
#include "autograd/require.h"
#include "autograd/tape.h"
#include "core/error.h"
#include "core/text.h"

namespace fovea {

namespace {

// Throws unless shift is [P] with P a multiple of `sources`; P.
std::int64_t matrices_of(const char* op, const Var& shift, std::int64_t sources, DType dtype) {
  if (!shift.defined()) return sources;
  const bool fits = shift.shape().rank() == 1 && sources > 0 && shift.size(0) % sources == 0 &&
                    shift.size(0) > 0 && shift.dtype() == dtype;
  if (!fits) {
    throw ShapeError(cat(op, ": shift is ", name_of(shift.dtype()), " ", shift.shape().str(),
                         ", but must be ", name_of(dtype), ", a multiple of ", sources));
  }
  return shift.size(0);
}

Shape with_first(Shape shape, std::int64_t count) {
  shape[0] = count;
  return shape;
}

}  // namespace

Var masked_matrix(Ctx& ctx, const LearnedMask& mask) {
  constexpr const char* kOp = "masked_matrix";
  require_float(kOp, "w", mask.w.value());
  const Shape shape = mask.w.shape();
  const DType dtype = mask.w.dtype();
  if (shape.rank() != 3 || acc_of(dtype) != dtype)
    throw ShapeError(cat(kOp, ": w is ", name_of(dtype), " ", shape.str(),
                         ", but must be [Q,in,out] of f32 or f64"));
  require_tensor(kOp, "g", mask.g.value(), shape, dtype);
  require_tensor(kOp, "m", mask.m, shape, DType::u8);
  const bool draws = mask.rule.sampled && mask.rule.kind != MaskRule::Kind::magnitude;
  if (draws) {
    require_tensor(kOp, "u", mask.u, shape, DType::f32);
    require_tensor(kOp, "tau", mask.tau, {1}, dtype);
  }
  const std::int64_t sources = shape[0];
  const std::int64_t matrices = matrices_of(kOp, mask.shift, sources, dtype);
  const Tensor s = ctx.empty(with_first(shape, matrices), dtype);
  struct Saved {
    Tensor w, g, shift, u, tau, m;
    std::int64_t matrices, sources, entries;
    MaskParts parts() const {
      return {w.view(), g.view(), shift.view(), u.view(), tau.view(),
              m.view(), matrices, sources,      entries};
    }
  };
  const Saved saved{mask.w.value(),
                    mask.g.value(),
                    mask.shift.value(),
                    draws ? mask.u : Tensor{},
                    draws ? mask.tau : Tensor{},
                    mask.m,
                    matrices,
                    sources,
                    shape[1] * shape[2]};
  FOVEA_ON(ctx.device, learned_mask_forward(ctx.stream.ref(), s.view(), saved.parts(), mask.rule));
  auto backward = [saved, rule = mask.rule, gw = mask.w.grad(), gg = mask.g.grad(),
                   gb = mask.shift.grad(),
                   whole = mask.whole](Ctx& c, std::span<const Tensor> dout) {
    const DType acc = saved.w.dtype();
    const Tensor ds = contiguous(c, dout[0], kOp), dw = grad_buffer(c, gw, saved.w.shape(), acc),
                 dg = grad_buffer(c, gg, saved.w.shape(), acc),
                 db = gb ? grad_buffer(c, gb, saved.shift.shape(), acc) : Tensor{},
                 all = grad_buffer(c, whole, saved.w.shape(), acc);
    const MaskGradients into{dw.view(), dg.view(), db.view(), all.view()};
    FOVEA_ON(c.device, learned_mask_backward(c.stream.ref(), into, ds.view(), saved.parts(), rule));
    give_buffer(c, gw, dw, acc);
    give_buffer(c, gg, dg, acc);
    give_buffer(c, gb, db, acc);
    give_buffer(c, whole, all, acc);
  };
  return finish(ctx, kOp, s, {mask.w.grad(), mask.g.grad(), mask.shift.grad(), mask.whole},
                std::move(backward));
}

Var logistic(Ctx& ctx, const Var& x, const Var& shift, const Tensor& tau, double per_tau) {
  constexpr const char* kOp = "logistic";
  require_float(kOp, "x", x.value());
  if (x.shape().rank() < 1 || acc_of(x.dtype()) != x.dtype())
    throw ShapeError(cat(kOp, ": x is ", name_of(x.dtype()), " ", x.shape().str(),
                         ", but must be [Q,...] of f32 or f64"));
  const bool at_tau = tau.defined() && per_tau != 0;
  if (at_tau) require_tensor(kOp, "tau", tau, {1}, x.dtype());
  const std::int64_t sources = x.size(0), matrices = matrices_of(kOp, shift, sources, x.dtype());
  const std::int64_t entries = sources > 0 ? x.numel() / sources : 0;
  const Tensor xv = contiguous(ctx, x.value()).reshape({sources, entries});
  const Tensor y = ctx.empty({matrices, entries}, x.dtype());
  FOVEA_ON(ctx.device, logistic_forward(ctx.stream.ref(), y.view(), xv.view(), shift.view(),
                                        at_tau ? tau.view() : View{}, per_tau));
  auto backward = [y, shape = x.shape(), sources, entries, gx = x.grad(), gb = shift.grad()](
                      Ctx& c, std::span<const Tensor> dout) {
    const Tensor dy = contiguous(c, dout[0], kOp), dx = grad_buffer(c, gx, shape, y.dtype()),
                 db = grad_buffer(c, gb, {y.size(0)}, y.dtype());
    const Tensor rows = gx ? dx.reshape({sources, entries}) : Tensor{};
    FOVEA_ON(c.device, logistic_backward(c.stream.ref(), rows.view(), db.view(),
                                         dy.reshape(y.shape()).view(), y.view()));
    give_buffer(c, gx, dx, y.dtype());
    give_buffer(c, gb, db, y.dtype());
  };
  return finish(ctx, kOp, y.reshape(with_first(x.shape(), matrices)), {x.grad(), shift.grad()},
                std::move(backward));
}

}  // namespace fovea
