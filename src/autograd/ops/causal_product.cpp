#include "autograd/ops/causal_product.h"

#include <algorithm>
#include <utility>

#include "autograd/param_grad.h"
#include "autograd/require.h"
#include "autograd/tape.h"
#include "core/error.h"
#include "core/text.h"
#include "kernels/basic.h"
#include "kernels/chunked.h"
#include "kernels/gemm.h"

namespace fovea {

namespace {

constexpr const char* kOp = "causal_product";

// Consecutive chunks of one length: all whole ones, or the rest.
struct Span {
  std::int64_t first_chunk, chunks, first, length;
};

// The sizes of a call, and its tensors as views [B,Hk,G,T, rows, columns] of chunks.
struct Sizes {
  std::int64_t batch, kv_heads, group, tokens, m, p, chunk;

  std::int64_t heads() const { return kv_heads * group; }
  std::int64_t chunks() const { return (tokens + chunk - 1) / chunk; }
  std::vector<Span> spans() const {
    const std::int64_t whole = tokens / chunk, rest = tokens % chunk;
    std::vector<Span> out;
    if (whole > 0) out.push_back({0, whole, 0, chunk});
    if (rest > 0) out.push_back({whole, 1, whole * chunk, rest});
    return out;
  }
  static View placed(const Tensor& x, std::int64_t offset, const std::int64_t (&dims)[6],
                     const std::int64_t (&strides)[6]) {
    View out = x.view();
    out.rank = 6;
    for (int i = 0; i < 6; ++i) {
      out.dim[i] = dims[i];
      out.stride[i] = strides[i];
    }
    out.data = static_cast<char*>(out.data) + offset * size_of(out.dtype);
    return out;
  }
  // Rows of [B,H,N,w].
  View by_query(const Tensor& x, const Span& s) const {
    const std::int64_t w = x.size(3), row = tokens * w;
    return placed(x, s.first * w, {batch, kv_heads, group, s.chunks, s.length, w},
                  {heads() * row, group * row, row, s.length * w, w, 1});
  }
  // Rows of [B,Hk,N,w], for each of the G query heads that read them, or once.
  View by_key(const Tensor& x, const Span& s, bool once) const {
    const std::int64_t w = x.size(3), row = tokens * w;
    return placed(x, s.first * w, {batch, kv_heads, once ? 1 : group, s.chunks, s.length, w},
                  {kv_heads * row, row, 0, s.length * w, w, 1});
  }
  // Columns of a map [(Hk,) w, L]: matrices [w, length].
  View by_map(const Tensor& x, std::int64_t from, const Span& s, bool once) const {
    const std::int64_t w = x.size(-2), columns = x.size(-1);
    return placed(x, from + s.first, {batch, kv_heads, once ? 1 : group, s.chunks, w, s.length},
                  {0, x.rank() == 3 ? w * columns : 0, 0, s.length, columns, 1});
  }
  // Matrices [B,Hk,T,m,p].
  View by_state(const Tensor& x, const Span& s, bool once) const {
    const std::int64_t size = m * p, row = chunks() * size;
    return placed(x, s.first_chunk * size, {batch, kv_heads, once ? 1 : group, s.chunks, m, p},
                  {kv_heads * row, row, 0, size, p, 1});
  }
};

// A matrix, or many, that may lie transposed.
struct Matrices {
  View view;
  bool transposed = false;
  Matrices flipped() const { return {view, !transposed}; }
};

struct Factor {
  Tensor value;
  bool is_map = false;
  std::int64_t from = 0;
  GradRef grad = nullptr;

  Matrices rows(const Sizes& z, const Span& s, bool once) const {
    if (is_map) return {z.by_map(value, from, s, once), true};
    return {z.by_key(value, s, once), false};
  }
};

// to = x y + beta to
void multiply(Ctx& c, const View& to, const Matrices& x, const Matrices& y, double beta) {
  FOVEA_ON(c.device, gemm(c.stream.ref(), to, x.view, y.view, x.transposed, y.transposed, beta));
}

// The query heads of one place in their groups.
View of_group(View x, std::int64_t g) {
  x.data = static_cast<char*>(x.data) + g * x.stride[2] * size_of(x.dtype);
  x.dim[2] = 1;
  return x;
}

// The matrices [T, rows, columns] of one sample and head.
View of_head(const View& x, std::int64_t b, std::int64_t h, std::int64_t g) {
  View out = x;
  out.rank = 3;
  for (int i = 0; i < 3; ++i) {
    out.dim[i] = x.dim[i + 3];
    out.stride[i] = x.stride[i + 3];
  }
  const std::int64_t at = b * x.stride[0] + h * x.stride[1] + g * x.stride[2];
  out.data = static_cast<char*>(x.data) + at * size_of(x.dtype);
  return out;
}

struct Product {
  Sizes z;
  Tensor a;  // [B,H,N,m]
  Factor b, c;

  Tensor states(Ctx& ctx, DType dtype) const {
    return ctx.empty({z.batch, z.kv_heads, z.chunks(), z.m, z.p}, dtype, kOp);
  }
  // lower(x y^T) of all chunks of a span.
  Tensor pairs(Ctx& ctx, const Span& s, const View& x, const Matrices& y) const {
    Tensor out =
        ctx.empty({z.batch, z.kv_heads, z.group, s.chunks, s.length, s.length}, a.dtype(), kOp);
    multiply(ctx, out.view(), {x}, y.flipped(), 0);
    FOVEA_ON(ctx.device, keep_lower(ctx.stream.ref(), out.view()));
    return out;
  }
  // What all chunks before (reverse: behind) each chunk add up to.
  Tensor summed(Ctx& ctx, const Tensor& each, const CausalState& state, bool reverse) const {
    Tensor out = states(ctx, a.dtype());
    const Shape rows{z.batch * z.kv_heads, z.chunks(), z.m * z.p};
    const View sum =
        state.sum.defined() ? state.sum.reshape({z.batch * z.kv_heads, z.m * z.p}).view() : View{};
    FOVEA_ON(ctx.device, scan_blocks(ctx.stream.ref(), out.reshape(rows).view(),
                                     each.reshape(rows).view(), sum, sum, reverse));
    return out;
  }
  Tensor states_before(Ctx& ctx, const CausalState& state) const {
    const Tensor each = states(ctx, acc_of(a.dtype()));
    for (const Span& s : z.spans()) {
      multiply(ctx, z.by_state(each, s, true), b.rows(z, s, true).flipped(), c.rows(z, s, true), 0);
    }
    return summed(ctx, each, state, false);
  }
  Tensor forward(Ctx& ctx, const Tensor& before, DType dtype) const {
    Tensor out = ctx.empty({z.batch, z.heads(), z.tokens, z.p}, dtype, kOp);
    for (const Span& s : z.spans()) {
      const View rows = z.by_query(a, s), to = z.by_query(out, s);
      const Tensor w = pairs(ctx, s, rows, b.rows(z, s, false));
      multiply(ctx, to, {w.view()}, c.rows(z, s, false), 0);
      multiply(ctx, to, {rows}, {z.by_state(before, s, false)}, 1.0);
    }
    return out;
  }
  void backward(Ctx& ctx, const GradRef& ga, const Tensor& before, const Tensor& dy) const;
  void factor_gradient(Ctx& ctx, const Span& s, const Factor& f, const Tensor& to,
                       const View& pairs_of, const View& rows, const Matrices& other,
                       const Matrices& later) const;
};

// The gradient of b (or c) on one span: pairs^T rows summed over the group, plus other later.
void Product::factor_gradient(Ctx& ctx, const Span& s, const Factor& f, const Tensor& to,
                              const View& pairs_of, const View& rows, const Matrices& other,
                              const Matrices& later) const {
  if (!f.is_map) {
    const View out = z.by_key(to, s, true);
    multiply(ctx, out, other, later, 0);
    for (std::int64_t g = 0; g < z.group; ++g)
      multiply(ctx, out, {of_group(pairs_of, g), true}, {of_group(rows, g)}, 1.0);
    return;
  }
  // Transposed, and summed over samples and heads one after the other.
  const View out = z.by_map(to, f.from, s, true);
  for (std::int64_t b_at = 0; b_at < z.batch; ++b_at) {
    for (std::int64_t h = 0; h < z.kv_heads; ++h) {
      const View head = of_head(out, 0, h, 0);
      for (std::int64_t g = 0; g < z.group; ++g)
        multiply(ctx, head, {of_head(rows, b_at, h, g), true}, {of_head(pairs_of, b_at, h, g)},
                 1.0);
      multiply(ctx, head, Matrices{of_head(later.view, b_at, h, 0), !later.transposed},
               Matrices{of_head(other.view, b_at, h, 0), !other.transposed}, 1.0);
    }
  }
}

void Product::backward(Ctx& ctx, const GradRef& ga, const Tensor& before, const Tensor& dy) const {
  const auto buffer = [&](const Factor& f) {
    if (!f.grad) return Tensor{};
    return f.is_map ? grad_buffer(ctx, f.grad, f.value.shape(), f.value.dtype())
                    : ctx.empty(f.value.shape(), f.value.dtype(), kOp);
  };
  const Tensor da = ga ? ctx.empty(a.shape(), a.dtype(), kOp) : Tensor{}, db = buffer(b),
               dc = buffer(c);
  Tensor later;  // what the chunks behind each ask of its state
  if (b.grad || c.grad) {
    const Tensor each = states(ctx, acc_of(a.dtype()));
    for (const Span& s : z.spans()) {
      const View rows = z.by_query(a, s), d = z.by_query(dy, s);
      for (std::int64_t g = 0; g < z.group; ++g)
        multiply(ctx, z.by_state(each, s, true), {of_group(rows, g), true}, {of_group(d, g)},
                 g > 0 ? 1.0 : 0.0);
    }
    later = summed(ctx, each, {}, true);
  }
  for (const Span& s : z.spans()) {
    const View rows = z.by_query(a, s), d = z.by_query(dy, s);
    const Tensor g = pairs(ctx, s, d, c.rows(z, s, false));
    if (ga) {
      multiply(ctx, z.by_query(da, s), {g.view()}, b.rows(z, s, false), 0);
      multiply(ctx, z.by_query(da, s), {d}, {z.by_state(before, s, false), true}, 1.0);
    }
    if (b.grad) {
      factor_gradient(ctx, s, b, db, g.view(), rows, c.rows(z, s, true),
                      {z.by_state(later, s, true), true});
    }
    if (c.grad) {
      const Tensor w = pairs(ctx, s, rows, b.rows(z, s, false));
      factor_gradient(ctx, s, c, dc, w.view(), d, b.rows(z, s, true), {z.by_state(later, s, true)});
    }
  }
  give(ctx, ga, da);
  for (const auto& [f, d] : {std::pair(&b, &db), std::pair(&c, &dc)}) {
    if (f->is_map)
      give_buffer(ctx, f->grad, *d, f->value.dtype());
    else if (f->grad)
      give(ctx, f->grad, *d);
  }
}

// Throws unless the factor fits; returns its width.
std::int64_t width_of(const char* name, const CausalFactor& f, const Var& a, std::int64_t first) {
  const Tensor& x = f.value.value();
  const std::int64_t tokens = a.size(2);
  bool fits = x.defined() && x.dtype() == a.dtype();
  if (f.is_map)
    fits = fits && (x.rank() == 2 || x.rank() == 3) && first + tokens <= x.size(-1);
  else
    fits = fits && x.rank() == 4 && x.size(0) == a.size(0) && x.size(2) == tokens;
  if (!fits) {
    throw ShapeError(cat(kOp, ": ", name, " is ", x.shape().str(), " ", name_of(x.dtype()),
                         " and does not fit a ", a.shape().str(), " ", name_of(a.dtype()),
                         first > 0 ? cat(" behind ", first, " tokens") : ""));
  }
  return f.is_map ? x.size(-2) : x.size(3);
}

std::int64_t heads_of(const CausalFactor& f) {
  const Shape& s = f.value.shape();
  if (!f.is_map) return s[1];
  return s.rank() == 3 ? s[0] : 1;
}

}  // namespace

Var causal_product(Ctx& ctx, const Var& a, const CausalFactor& b, const CausalFactor& c, DType out,
                   std::int64_t chunk, const CausalState& state) {
  require_float(kOp, "a", a.value());
  if (a.shape().rank() != 4)
    throw ShapeError(cat(kOp, ": a is ", a.shape().str(), ", but must be [B,H,N,m]"));
  const std::int64_t m = width_of("b", b, a, state.first), p = width_of("c", c, a, state.first);
  const std::int64_t kv_heads = std::max(heads_of(b), heads_of(c));
  const auto shared = [&](const CausalFactor& f) {
    return heads_of(f) == kv_heads || (f.is_map && heads_of(f) == 1);
  };
  if (a.size(3) != m || !shared(b) || !shared(c) || a.size(1) % kv_heads != 0)
    throw ShapeError(cat(kOp, ": a ", a.shape().str(), ", b ", b.value.shape().str(), " and c ",
                         c.value.shape().str(), " do not fit together"));
  Product product{{a.size(0), kv_heads, a.size(1) / kv_heads, a.size(2), m, p,
                   std::min(chunk, std::max<std::int64_t>(1, a.size(2)))},
                  contiguous(ctx, a.value(), kOp),
                  {contiguous(ctx, b.value.value(), kOp), b.is_map, state.first, b.value.grad()},
                  {contiguous(ctx, c.value.value(), kOp), c.is_map, state.first, c.value.grad()}};
  const Tensor before = product.states_before(ctx, state);
  const Tensor y = product.forward(ctx, before, out);
  if (state.sum.defined()) return Var(y);
  auto backward = [product, before, ga = a.grad()](Ctx& back, std::span<const Tensor> dout) {
    Tensor dy = contiguous(back, dout[0], kOp);
    if (dy.dtype() != product.a.dtype()) {
      const Tensor narrow = back.empty(dy.shape(), product.a.dtype(), kOp);
      FOVEA_ON(back.device, copy(back.stream.ref(), narrow.view(), dy.view()));
      dy = narrow;
    }
    product.backward(back, ga, before, dy);
  };
  return finish(ctx, kOp, y, {a.grad(), b.value.grad(), c.value.grad()}, std::move(backward));
}

}  // namespace fovea
