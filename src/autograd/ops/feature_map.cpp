#include "autograd/ops/feature_map.h"

#include <utility>

#include "autograd/param_grad.h"
#include "autograd/require.h"
#include "autograd/tape.h"
#include "core/error.h"
#include "core/text.h"

namespace fovea {

namespace {

std::int64_t heads_of(const Tensor& x, const Features& how) {
  return how.sigma.defined() ? how.sigma.size(0) : x.size(1);
}

void require_map(const char* op, const Tensor& x, const Features& how) {
  const bool random =
      how.exponential() || how.kind == FeatureKind::relu_random || how.kind == FeatureKind::fourier;
  const auto require = [op](bool ok, const std::string& what) {
    if (!ok) throw ShapeError(cat(op, ": ", what));
  };
  require(random == how.w.defined(), "a random map needs w, others take none");
  require((how.kind == FeatureKind::fourier) == how.sigma.defined(),
          "sigma belongs to the fourier map, which needs it");
  if (random) {
    const Shape& s = how.w.shape();
    require((s.rank() == 2 || s.rank() == 3) && s.cols() == x.size(3) &&
                how.w.dtype() == DType::f32 && how.w.is_contiguous(),
            cat("w is ", name_of(how.w.dtype()), " ", s.str(), ", but must be f32 [R,", x.size(3),
                "] or [G,R,", x.size(3), "]"));
    require(how.entries.defined() || s.rank() == 2 || heads_of(x, how) % s[0] == 0,
            cat("w has ", s[0], " matrices for ", heads_of(x, how), " heads"));
  }
  if (how.sigma.defined()) {
    const Shape& s = how.sigma.shape();
    require(s.rank() == 2 && s[1] == x.size(3) && s[0] % x.size(1) == 0 &&
                how.sigma.dtype() == x.dtype(),
            cat("sigma is ", name_of(how.sigma.dtype()), " ", s.str(), ", but must be ",
                name_of(x.dtype()), " [H,", x.size(3), "], H a multiple of ", x.size(1)));
  }
  if (how.entries.defined())
    require_tensor(op, "entries", how.entries, {heads_of(x, how)}, DType::i32);
  if (how.positions.defined())
    require_tensor(op, "positions", how.positions, {x.size(0), x.size(2)}, DType::i32);
}

}  // namespace

FeatureRows::FeatureRows(Ctx& ctx, const char* op, const Var& x, const Features& how, Tensor valid,
                         Tensor segments)
    : op_(op), valid_(std::move(valid)), segments_(std::move(segments)) {
  require_float(op, "x", x.value());
  if (x.value().rank() != 4)
    throw ShapeError(cat(op, ": x is ", x.shape().str(), ", but must be [B,H,N,D]"));
  require_map(op, x.value(), how);
  const Shape tokens{x.size(0), x.size(2)};
  if (valid_.defined()) require_tensor(op, "valid", valid_, tokens, DType::u8);
  if (segments_.defined()) require_tensor(op, "segments", segments_, tokens, DType::i32);
  const bool walkable = x.value().strides()[3] == 1 || x.size(3) == 1;
  x_ = walkable ? x.value() : contiguous(ctx, x.value(), op);
}

FeatureMap FeatureRows::kernel_map(const Features& how) const {
  FeatureMap map;
  map.kind = how.kind;
  map.stabiliser = how.stabiliser;
  map.scale = how.scale;
  map.eps = how.eps;
  map.offset = how.offset;
  map.reference = how.reference;
  map.temperature = how.temperature;
  map.w = how.w.view();
  map.sigma = how.sigma.view();
  map.entries = how.entries.view();
  map.positions = how.positions.view();
  map.valid = valid_.view();
  map.segments = segments_.view();
  return map;
}

Tensor FeatureRows::map(Ctx& ctx, const Features& how, Tensor* exponent, bool again) {
  const std::int64_t heads = heads_of(x_, how);
  FeatureMap map = kernel_map(how);
  map.again = again;
  const Shape rows{x_.size(0), heads, x_.size(2)};
  Tensor y =
      ctx.empty({rows[0], rows[1], rows[2], feature_count(map, x_.size(3))}, x_.dtype(), op_);
  if (how.exponential() && !shift_.defined()) shift_ = ctx.empty(rows, acc_of(x_.dtype()), op_);
  if (how.exponential() && exponent != nullptr)
    *exponent = ctx.empty(rows, acc_of(x_.dtype()), op_);
  if (how.stabiliser == Stabiliser::shared && !again && ctx.tape != nullptr && ctx.tape->keeps())
    shared_ = ctx.empty(rows, acc_of(x_.dtype()), op_);
  map.shared = shared_.view();
  FOVEA_ON(ctx.device, features_forward(ctx.stream.ref(), y.view(),
                                        exponent != nullptr ? exponent->view() : View{},
                                        shift_.view(), x_.view(), map));
  return y;
}

void FeatureRows::give_gradients(Ctx& ctx, const GradRef& to, const Features& how,
                                 const Tensor& dy) const {
  const GradRef& sigma = how.sigma.grad();
  if (!to && !sigma) return;
  const Tensor dx = to ? ctx.empty(x_.shape(), x_.dtype(), op_) : Tensor();
  const Tensor dsigma = grad_buffer(ctx, sigma, sigma ? how.sigma.shape() : Shape{}, x_.dtype());
  FOVEA_ON(ctx.device, features_backward(ctx.stream.ref(), dx.view(), dsigma.view(), dy.view(),
                                         x_.view(), shift_.view(), kernel_map(how)));
  give_buffer(ctx, sigma, dsigma, x_.dtype());
  give(ctx, to, dx);
}

MappedFeatures map_features(Ctx& ctx, const Var& x, const Features& how, const Tensor& valid,
                            const Tensor& segments) {
  constexpr const char* kOp = "map_features";
  FeatureRows rows(ctx, kOp, x, how, valid, segments);
  MappedFeatures out;
  const Tensor y = rows.map(ctx, how, &out.exponent, false);
  auto backward = [rows, how, gx = x.grad()](Ctx& c, std::span<const Tensor> dout) {
    rows.give_gradients(c, gx, how, contiguous(c, dout[0], kOp));
  };
  out.y = finish(ctx, kOp, y, {x.grad(), how.sigma.grad()}, std::move(backward));
  return out;
}

}  // namespace fovea
