// pseudo_inverse of landmarks.h.

#include <utility>
#include <vector>

#include "autograd/ops/landmarks.h"
#include "autograd/require.h"
#include "autograd/tape.h"
#include "core/error.h"
#include "core/text.h"
#include "kernels/basic.h"
#include "kernels/gemm.h"
#include "kernels/landmarks.h"

namespace fovea {

namespace {

constexpr const char* kOp = "pseudo_inverse";

// Small square matrices [P,m,m] of one context.
struct Squares {
  Ctx& ctx;
  const Tensor& like;

  // to = factor x y + beta to; the factor, if not 1, needs a pass of its own.
  void multiply(const Tensor& to, const Tensor& x, bool transpose_x, const Tensor& y,
                bool transpose_y, double beta = 0) const {
    FOVEA_ON(ctx.device,
             gemm(ctx.stream.ref(), to.view(), x.view(), y.view(), transpose_x, transpose_y, beta));
  }
  Tensor product(const Tensor& x, const Tensor& y, bool transpose_x = false,
                 bool transpose_y = false) const {
    Tensor out = ctx.empty_like(like, kOp);
    multiply(out, x, transpose_x, y, transpose_y);
    return out;
  }
  // x becomes alpha I - x.
  Tensor from_identity(double alpha, const Tensor& x) const {
    FOVEA_ON(ctx.device, identity_minus(ctx.stream.ref(), x.view(), x.view(), alpha));
    return x;
  }
  Tensor copied_from_identity(double alpha, const Tensor& x) const {
    Tensor out = ctx.empty_like(like, kOp);
    FOVEA_ON(ctx.device, identity_minus(ctx.stream.ref(), out.view(), x.view(), alpha));
    return out;
  }
  void scale(const Tensor& x, double factor) const {
    FOVEA_ON(ctx.device, scale_forward(ctx.stream.ref(), x.view(), x.view(), factor));
  }
};

// What a step makes on the way: Z' = Z T3 / 4.
struct Step {
  Tensor p, t1, t2, t3;
  Step(const Squares& s, const Tensor& a, const Tensor& z)
      : p(s.product(a, z)),
        t1(s.copied_from_identity(7, p)),
        t2(s.from_identity(15, s.product(p, t1))),
        t3(s.from_identity(13, s.product(p, t2))) {}
};

// One step back: from G = dZ' to dZ, adding to dA.
Tensor step_back(const Squares& s, const Tensor& a, const Tensor& z, const Tensor& g,
                 const Tensor& da) {
  const Step step(s, a, z);
  s.scale(g, 0.25);
  Tensor dz = s.product(g, step.t3, false, true);
  const Tensor dt3 = s.product(z, g, true);
  s.scale(dt3, -1);                                        // -dT3
  const Tensor dt2 = s.product(step.p, dt3, true);         // dT2 = -P^T dT3
  const Tensor dp = s.product(dt3, step.t2, false, true);  // -dT3 T2^T
  s.scale(dt2, -1);                                        // -dT2
  s.multiply(dp, dt2, false, step.t1, true, 1.0);          // -dT2 T1^T
  const Tensor dt1 = s.product(step.p, dt2, true);         // dT1 = -P^T dT2
  s.scale(dt1, -1);                                        // -dT1
  FOVEA_ON(s.ctx.device, accumulate(s.ctx.stream.ref(), dp.view(), dt1.view()));
  s.multiply(da, dp, false, z, true, 1.0);
  s.multiply(dz, a, true, dp, false, 1.0);
  return dz;
}

}  // namespace

Var pseudo_inverse(Ctx& ctx, const Var& a, int iterations) {
  const Shape shape = a.shape();
  const bool square = shape.rank() >= 2 && a.value().size(-1) == a.value().size(-2) &&
                      (a.dtype() == DType::f32 || a.dtype() == DType::f64);
  if (!square || iterations < 0) {
    throw ShapeError(cat(kOp, ": a is ", name_of(a.dtype()), " ", shape.str(),
                         ", but must be f32 or f64 [..., m, m]"));
  }
  const std::int64_t m = shape.cols(), count = m > 0 ? shape.numel() / (m * m) : 0;
  const Tensor flat = contiguous(ctx, a.value(), kOp).reshape({count, m, m});
  const Tensor norm = ctx.empty({count}, a.dtype(), kOp);
  std::vector<Tensor> z = {ctx.empty_like(flat, kOp)};
  FOVEA_ON(ctx.device, pinv_start(ctx.stream.ref(), z[0].view(), norm.view(), flat.view()));
  const Squares squares{ctx, flat};
  for (int i = 0; i < iterations; ++i) {
    const Tensor next = squares.product(z.back(), Step(squares, flat, z.back()).t3);
    squares.scale(next, 0.25);
    z.push_back(next);
  }
  const Tensor out = z.back();
  z.pop_back();
  auto backward = [flat, norm, z, ga = a.grad(), shape](Ctx& c, std::span<const Tensor> dout) {
    const Squares s{c, flat};
    const Tensor da = c.zeros(flat.shape(), flat.dtype(), kOp);
    Tensor g = c.empty_like(flat, kOp);  // its own: it is scaled in place
    FOVEA_ON(c.device, copy(c.stream.ref(), g.view(),
                            contiguous(c, dout[0], kOp).reshape(flat.shape()).view()));
    for (auto at = z.rbegin(); at != z.rend(); ++at)
      g = step_back(s, flat, *at, g, da);
    FOVEA_ON(c.device, pinv_start_backward(c.stream.ref(), da.view(), g.view(), norm.view()));
    give(c, ga, da.reshape(shape));
  };
  return finish(ctx, kOp, out.reshape(shape), {a.grad()}, std::move(backward));
}

}  // namespace fovea
