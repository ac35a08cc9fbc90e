#include "autograd/ops/landmarks.h"

#include <utility>

#include "autograd/param_grad.h"
#include "autograd/require.h"
#include "autograd/tape.h"
#include "core/error.h"
#include "core/text.h"
#include "kernels/landmarks.h"

namespace fovea {

namespace {

// [B,H,N,D] stored as [B,N,H,D], as attention's outputs are.
Tensor by_token(Ctx& ctx, const Shape& s, DType dtype, const char* op) {
  return ctx.empty({s[0], s[2], s[1], s[3]}, dtype, op).permute({0, 2, 1, 3});
}

}  // namespace

LandmarkCut LandmarkCut::of(Ctx& ctx, const Tensor& valid, std::int64_t batch, std::int64_t tokens,
                            std::int64_t landmarks) {
  constexpr const char* kOp = "cut_landmarks";
  if (valid.defined()) require_tensor(kOp, "valid", valid, {batch, tokens}, DType::u8);
  LandmarkCut cut{.begin = ctx.empty({batch, landmarks + 1}, DType::i32, kOp),
                  .size = ctx.empty({batch, landmarks}, DType::i32, kOp),
                  .present = ctx.empty({batch, landmarks}, DType::u8, kOp),
                  .single = ctx.empty({batch}, DType::u8, kOp),
                  .valid = valid};
  FOVEA_ON(ctx.device, landmark_cut(ctx.stream.ref(), cut.begin.view(), cut.size.view(),
                                    cut.present.view(), cut.single.view(), valid.view(), tokens));
  return cut;
}

Var segment_mean(Ctx& ctx, const Var& x, const LandmarkCut& cut, std::int64_t heads) {
  constexpr const char* kOp = "segment_mean";
  require_float(kOp, "x", x.value());
  const bool fits = x.shape().rank() == 4 && x.size(0) == cut.size.size(0) && x.size(1) > 0 &&
                    heads % x.size(1) == 0;
  if (!fits) {
    throw ShapeError(cat(kOp, ": x is ", x.shape().str(), ", but must be [", cut.size.size(0),
                         ",Hx,N,D] with ", heads, " a multiple of Hx"));
  }
  const Tensor out = ctx.empty({x.size(0), heads, cut.size.size(1), x.size(3)}, x.dtype(), kOp);
  FOVEA_ON(ctx.device, segment_mean_forward(ctx.stream.ref(), out.view(), x.view(),
                                            cut.begin.view(), cut.size.view(), cut.valid.view()));
  auto backward = [cut, shape = x.shape(), gx = x.grad()](Ctx& c, std::span<const Tensor> dout) {
    const Tensor dx = by_token(c, shape, dout[0].dtype(), kOp);
    FOVEA_ON(c.device, segment_mean_backward(c.stream.ref(), dx.view(), dout[0].view(),
                                             cut.begin.view(), cut.size.view(), cut.valid.view()));
    give(c, gx, dx);
  };
  return finish(ctx, kOp, out, {x.grad()}, std::move(backward));
}

Var choose_samples(Ctx& ctx, const Tensor& flags, const Var& yes, const Var& no) {
  constexpr const char* kOp = "choose_samples";
  require_tensor(kOp, "no", no.value(), yes.shape(), yes.dtype());
  require_tensor(kOp, "flags", flags, {yes.size(0)}, DType::u8);
  const Tensor a = contiguous(ctx, yes.value(), kOp), b = contiguous(ctx, no.value(), kOp),
               out = ctx.empty_like(a, kOp);
  FOVEA_ON(ctx.device,
           choose_samples(ctx.stream.ref(), out.view(), flags.view(), a.view(), b.view()));
  auto backward = [flags, gy = yes.grad(), gn = no.grad()](Ctx& c, std::span<const Tensor> dout) {
    const Tensor d = contiguous(c, dout[0], kOp);
    const auto given = [&](const GradRef& to, bool where) {
      if (!to) return;
      const Tensor part = c.empty_like(d, kOp);
      FOVEA_ON(c.device, choose_samples(c.stream.ref(), part.view(), flags.view(),
                                        where ? d.view() : View{}, where ? View{} : d.view()));
      give(c, to, part);
    };
    given(gy, true);
    given(gn, false);
  };
  return finish(ctx, kOp, out, {yes.grad(), no.grad()}, std::move(backward));
}

Var add_token_conv(Ctx& ctx, const Var& o, const Var& v, const Var& w, const Tensor& valid) {
  constexpr const char* kOp = "add_token_conv";
  require_float(kOp, "o", o.value());
  const bool fits = o.shape().rank() == 4 && v.shape().rank() == 4 && w.shape().rank() == 2 &&
                    v.size(0) == o.size(0) && v.size(2) == o.size(2) && v.size(3) == o.size(3) &&
                    v.size(1) > 0 && o.size(1) % v.size(1) == 0 && w.size(0) == o.size(1) &&
                    v.dtype() == o.dtype() && w.dtype() == o.dtype();
  if (!fits) {
    throw ShapeError(cat(kOp, ": o ", o.shape().str(), ", v ", v.shape().str(), " and w ",
                         w.shape().str(), " do not fit together, or differ in dtype"));
  }
  if (valid.defined()) require_tensor(kOp, "valid", valid, {o.size(0), o.size(2)}, DType::u8);
  const Tensor taps = contiguous(ctx, w.value(), kOp),
               out = by_token(ctx, o.shape(), o.dtype(), kOp);
  FOVEA_ON(ctx.device, token_conv_forward(ctx.stream.ref(), out.view(), o.view(), v.view(),
                                          taps.view(), valid.view()));
  auto backward = [taps, valid, vt = v.value(), go = o.grad(), gv = v.grad(), gw = w.grad()](
                      Ctx& c, std::span<const Tensor> dout) {
    const Tensor dv = gv ? by_token(c, vt.shape(), vt.dtype(), kOp) : Tensor{};
    const Tensor dw = grad_buffer(c, gw, taps.shape(), taps.dtype());
    FOVEA_ON(c.device, token_conv_backward(c.stream.ref(), dv.view(), dw.view(), dout[0].view(),
                                           vt.view(), taps.view(), valid.view()));
    give(c, gv, dv);
    give_buffer(c, gw, dw, taps.dtype());
    give(c, go, dout[0]);
  };
  return finish(ctx, kOp, out, {o.grad(), v.grad(), w.grad()}, std::move(backward));
}

}  // namespace fovea
