#include "autograd/ops/feature_projection.h"

#include <utility>

#include "autograd/param_grad.h"
#include "autograd/require.h"
#include "autograd/tape.h"
#include "core/error.h"
#include "core/text.h"
#include "kernels/basic.h"
#include "kernels/bias.h"
#include "kernels/gemm.h"

namespace fovea {

namespace {

// Groups of `in` features, of which `share` neighbours have one matrix.
struct Groups {
  std::int64_t sources, share, in, out;
  std::int64_t count() const { return sources * share; }
};

// As [sources, share, rows, cols], row-major inside; matrices `step` elements apart.
View batched(const Tensor& x, const Groups& g, std::int64_t rows, std::int64_t cols,
             std::int64_t row_step, std::int64_t step, bool shared = false) {
  View out = x.view();
  out.rank = 4;
  const std::int64_t dims[] = {g.sources, g.share, rows, cols},
                     strides[] = {shared ? step : g.share * step, shared ? 0 : step, row_step, 1};
  for (int i = 0; i < 4; ++i) {
    out.dim[i] = dims[i];
    out.stride[i] = strides[i];
  }
  return out;
}

View shared_matrices(const Tensor& s, const Groups& g) {
  return batched(s, g, g.in, g.out, g.out, g.in * g.out, true);
}

// Groups as columns of tokens [rows, W].
View columns(const Tensor& x, const Groups& g, std::int64_t width) {
  return batched(x, g, x.size(0), width, x.strides()[0], width);
}

// [B,H,N,D] as rows of tokens [B N, H D]: a view where heads lie side by side and samples one
// behind the other, else a copy.
Tensor token_rows(Ctx& ctx, const Tensor& x, const char* op) {
  const Shape& s = x.strides();
  const std::int64_t batch = x.size(0), heads = x.size(1), tokens = x.size(2), width = x.size(3);
  const bool lies = s[3] == 1 && (heads == 1 || s[1] == width) &&
                    (batch == 1 || s[0] == tokens * s[2]) && s[2] >= heads * width;
  if (lies) return x.permute({0, 2, 1, 3}).merge_axes(2).merge_axes(0);
  return contiguous(ctx, x.permute({0, 2, 1, 3}), op).reshape({batch * tokens, heads * width});
}

// [B N, heads W] as [B,heads,N,W].
Tensor as_heads(const Tensor& rows, std::int64_t batch, std::int64_t heads) {
  return rows.split_axis(0, rows.size(0) / batch)
      .split_axis(2, rows.size(1) / heads)
      .permute({0, 2, 1, 3});
}

Tensor as_dtype(Ctx& ctx, const Tensor& x, DType dtype, const char* op) {
  if (x.dtype() == dtype) return x;
  Tensor out = ctx.empty(x.shape(), dtype, op);
  FOVEA_ON(ctx.device, copy(ctx.stream.ref(), out.view(), x.view()));
  return out;
}

// Gives S's gradient: the products of all groups, those that share a matrix added in their order.
void give_matrices(Ctx& c, const GradRef& to, const Groups& g, const Tensor& each) {
  if (g.share == 1) return give(c, to, each.reshape({g.sources, g.in, g.out}));
  const Tensor total = c.zeros({g.sources, g.in, g.out}, each.dtype());
  const std::int64_t size = g.in * g.out;
  for (std::int64_t source = 0; source < g.sources; ++source) {
    FOVEA_ON(c.device,
             column_sum(c.stream.ref(), total.slice(0, source, source + 1).reshape({size}).view(),
                        each.slice(0, source, source + 1).reshape({g.share, size}).view()));
  }
  give(c, to, total);
}

void require_matrices(const char* op, const Var& s, DType dtype) {
  if (s.shape().rank() == 3 && s.dtype() == acc_of(dtype) && s.value().is_contiguous()) return;
  throw ShapeError(cat(op, ": s is ", name_of(s.dtype()), " ", s.shape().str(), ", but must be ",
                       name_of(acc_of(dtype)), " [G,in,out]"));
}

// Throws unless `features` are whole groups, and a whole number of those a matrix.
Groups groups_of(const char* op, const Var& s, std::int64_t features) {
  const std::int64_t sources = s.size(0), in = s.size(1);
  if (sources == 0 || in == 0 || features % (in * sources) != 0) {
    throw ShapeError(
        cat(op, ": ", features, " features are not a multiple of those of s ", s.shape().str()));
  }
  return {sources, features / in / sources, in, s.size(2)};
}

}  // namespace

Var project_features(Ctx& ctx, const Var& x, const Var& s, std::int64_t heads) {
  constexpr const char* kOp = "project_features";
  require_float(kOp, "x", x.value());
  if (x.shape().rank() != 4)
    throw ShapeError(cat(kOp, ": x is ", x.shape().str(), ", but must be [B,H,N,D]"));
  require_matrices(kOp, s, x.dtype());
  const Groups g = groups_of(kOp, s, x.size(1) * x.size(3));
  if (s.size(1) % x.size(3) != 0 || heads % g.count() != 0 || g.count() * g.out % heads != 0) {
    throw ShapeError(cat(kOp, ": x ", x.shape().str(), " by s ", s.shape().str(), " cannot become ",
                         heads, " heads"));
  }
  const std::int64_t batch = x.size(0), heads_in = x.size(1);
  const Tensor rows = token_rows(ctx, x.value(), kOp);
  const Tensor sv = as_dtype(ctx, s.value(), x.dtype(), kOp);
  const Tensor y = ctx.empty({rows.size(0), g.count() * g.out}, x.dtype());
  FOVEA_ON(ctx.device, gemm(ctx.stream.ref(), columns(y, g, g.out), columns(rows, g, g.in),
                            shared_matrices(sv, g), false, false, 0.0));
  auto backward = [rows = s.grad() ? rows : Tensor{}, sv, g, batch, heads_in, gx = x.grad(),
                   gs = s.grad()](Ctx& c, std::span<const Tensor> dout) {
    const Tensor dy = token_rows(c, dout[0], kOp);
    if (gs) {
      const Tensor each = c.empty({g.sources, g.share, g.in, g.out}, acc_of(sv.dtype()), kOp);
      FOVEA_ON(c.device, gemm(c.stream.ref(), each.view(), columns(rows, g, g.in),
                              columns(dy, g, g.out), true, false, 0.0));
      give_matrices(c, gs, g, each);
    }
    if (!gx) return;
    const Tensor dx = c.empty({dy.size(0), g.count() * g.in}, sv.dtype(), kOp);
    FOVEA_ON(c.device, gemm(c.stream.ref(), columns(dx, g, g.in), columns(dy, g, g.out),
                            shared_matrices(sv, g), false, true, 0.0));
    give(c, gx, as_heads(dx, batch, heads_in));
  };
  return finish(ctx, kOp, as_heads(y, batch, heads), {x.grad(), s.grad()}, std::move(backward));
}

namespace {

// A part of a fold: where its rows begin before and after, and how they are grouped.
struct Stretch {
  std::int64_t from, rows, to, folded;
  bool mapped;
  Groups groups;
  Tensor s;
  GradRef gs;
};

std::vector<Stretch> stretches_of(const char* op, const Var& w,
                                  const std::vector<FoldPart>& parts) {
  std::vector<Stretch> out;
  std::int64_t from = 0, to = 0;
  for (const FoldPart& part : parts) {
    Stretch one{from, part.rows, to, part.rows, part.s.defined(), {}, {}, {}};
    if (one.mapped) {
      require_matrices(op, part.s, w.dtype());
      one.groups = groups_of(op, part.s, part.rows);
      one.folded = one.groups.count() * one.groups.out;
      one.s = part.s.value();
      one.gs = part.s.grad();
    }
    from += one.rows;
    to += one.folded;
    out.push_back(one);
  }
  const int rank = w.shape().rank();
  if ((rank != 1 && rank != 2) || w.size(0) != from || !w.value().is_contiguous()) {
    throw ShapeError(
        cat(op, ": w is ", w.shape().str(), ", but the parts need ", from, " contiguous rows"));
  }
  return out;
}

// Groups of rows of a weight [R,C].
View row_groups(const Tensor& w, const Groups& g, std::int64_t rows) {
  return batched(w, g, rows, w.size(1), w.size(1), rows * w.size(1));
}

// dw += S dout, ds = w dout^T for one part; dw, w and d are its rows, d of acc.
void give_part(Ctx& c, const Stretch& part, const Tensor& dw, const Tensor& w, const Tensor& d) {
  const Groups& g = part.groups;
  const View dv = row_groups(d, g, g.out);
  if (dw.defined()) {
    FOVEA_ON(c.device, gemm(c.stream.ref(), row_groups(dw, g, g.in), shared_matrices(part.s, g), dv,
                            false, false, 1.0));
  }
  if (!part.gs) return;
  const Tensor wide = as_dtype(c, w, d.dtype(), "fold_features");
  const Tensor each = c.empty({g.sources, g.share, g.in, g.out}, d.dtype(), "fold_features");
  FOVEA_ON(c.device,
           gemm(c.stream.ref(), each.view(), row_groups(wide, g, g.in), dv, false, true, 0.0));
  give_matrices(c, part.gs, g, each);
}

}  // namespace

Var fold_features(Ctx& ctx, const Var& w, const std::vector<FoldPart>& parts) {
  constexpr const char* kOp = "fold_features";
  require_float(kOp, "w", w.value());
  const std::vector<Stretch> stretches = stretches_of(kOp, w, parts);
  const std::int64_t cols = w.shape().rank() == 2 ? w.size(1) : 1;
  const Tensor wv = w.value().reshape({w.size(0), cols});
  const DType acc = acc_of(w.dtype());
  const Tensor out =
      ctx.empty({stretches.back().to + stretches.back().folded, cols}, w.dtype(), kOp);
  std::vector<GradRef> inputs{w.grad()};
  for (const Stretch& part : stretches) {
    inputs.push_back(part.gs);
    const Tensor from = wv.slice(0, part.from, part.from + part.rows),
                 to = out.slice(0, part.to, part.to + part.folded);
    if (!part.mapped) {
      FOVEA_ON(ctx.device, copy(ctx.stream.ref(), to.view(), from.view()));
      continue;
    }
    const Tensor wide = as_dtype(ctx, from, acc, kOp),
                 exact = w.dtype() == acc ? to : ctx.empty(to.shape(), acc, kOp);
    FOVEA_ON(ctx.device, gemm(ctx.stream.ref(), row_groups(exact, part.groups, part.groups.out),
                              shared_matrices(part.s, part.groups),
                              row_groups(wide, part.groups, part.groups.in), true, false, 0.0));
    if (!(w.dtype() == acc)) FOVEA_ON(ctx.device, copy(ctx.stream.ref(), to.view(), exact.view()));
  }
  Shape shape = out.shape();
  if (w.shape().rank() == 1) shape = {out.size(0)};
  auto backward = [wv, stretches, acc, shape = w.shape(), gw = w.grad()](
                      Ctx& c, std::span<const Tensor> dout) {
    const Tensor d =
        as_dtype(c, contiguous(c, dout[0]), acc, kOp).reshape({dout[0].size(0), wv.size(1)});
    const Tensor buffer = grad_buffer(c, gw, shape, wv.dtype());
    const Tensor dw = gw ? buffer.reshape(wv.shape()) : Tensor{};
    for (const Stretch& part : stretches) {
      const Tensor own = d.slice(0, part.to, part.to + part.folded);
      const Tensor to = gw ? dw.slice(0, part.from, part.from + part.rows) : Tensor{};
      if (part.mapped)
        give_part(c, part, to, wv.slice(0, part.from, part.from + part.rows), own);
      else if (gw)
        FOVEA_ON(c.device, accumulate(c.stream.ref(), to.view(), own.view()));
    }
    give_buffer(c, gw, buffer, wv.dtype());
  };
  const Tensor result = out.reshape(shape);
  Var folded = std::move(
      finish(ctx, kOp, std::span(&result, 1), std::move(inputs), std::move(backward)).front());
  if (folded.grad()) folded.grad()->unrounded = true;
  return folded;
}

}  // namespace fovea
