#include "attention/spa/matrices.h"

#include <cmath>

#include "autograd/ops/elementwise.h"
#include "autograd/ops/feature_projection.h"
#include "autograd/ops/learned_mask.h"
#include "kernels/basic.h"

namespace fovea::attention::spa {

namespace {

// s [H,in,out], a factor for each matrix.
Var scaled(Ctx& ctx, const Var& s, const Var& factors) {
  const Shape shape = s.shape();
  const Var rows = reshape(ctx, s, {1, shape[0], 1, shape[1] * shape[2]});
  return reshape(ctx, scale_heads(ctx, rows, factors), shape);
}

View as_view(const Tensor& x, std::int64_t rows, std::int64_t cols, std::int64_t row_step,
             std::int64_t step) {
  View out = x.view();
  out.rank = 2;
  out.dim[0] = rows;
  out.dim[1] = cols;
  out.stride[0] = row_step;
  out.stride[1] = step;
  return out;
}

// `value` on the diagonals of `count` matrices; made by kernels, so that a step can be captured.
Var diagonals(Ctx& ctx, std::int64_t count, std::int64_t width, double value, DType dtype) {
  const Tensor out = ctx.zeros({count, width, width}, dtype, "spa"),
               one = ctx.empty({1}, dtype, "spa");
  FOVEA_ON(ctx.device, fill(ctx.stream.ref(), one.view(), value));
  FOVEA_ON(ctx.device, copy(ctx.stream.ref(), as_view(out, count, width, width * width, width + 1),
                            as_view(one, count, width, 0, 0)));
  return Var(out);
}

FeatureMatrices blended(Ctx& ctx, const Settings& settings, const Var& of_queries, const Var& s,
                        const Var& g, double dense) {
  const Var each = repeat_matrices(ctx, of_queries, g.size(0));
  const Var eye = diagonals(ctx, g.size(0), s.size(1), dense / settings.scale, s.dtype());
  const Var rest = add(ctx, eye, scale(ctx, scaled(ctx, eye, g), -1));
  return {join_features(ctx, scaled(ctx, each, g), rest),
          join_features(ctx, s, diagonals(ctx, s.size(0), s.size(1), 1, s.dtype()))};
}

}  // namespace

Var gates_of(Ctx& ctx, const Var& theta) {
  return scale(ctx, logistic(ctx, theta), 2);
}

FeatureMatrices feature_matrices(Ctx& ctx, const Settings& settings, const Var& s, const Var& theta,
                                 const Tensor& head_scales) {
  const Var each = head_scales.defined()
                       ? scaled(ctx, repeat_matrices(ctx, s, settings.q_heads), Var(head_scales))
                       : s;
  const bool on_queries =
      settings.gate == Gate::score || settings.gate == Gate::proj || settings.gate == Gate::blend;
  if (!on_queries) return {each, s};
  const Var g = gates_of(ctx, theta);
  if (settings.gate == Gate::blend) {
    const double dense = 1 / std::sqrt(static_cast<double>(settings.pattern.in));
    return blended(ctx, settings, each, s, g, dense);
  }
  const Var factors = settings.gate == Gate::proj ? mul(ctx, g, g) : g;
  return {scaled(ctx, repeat_matrices(ctx, each, settings.q_heads), factors), s};
}

}  // namespace fovea::attention::spa
