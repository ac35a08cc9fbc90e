#include "autograd/ops/low_rank.h"

#include <utility>

#include "autograd/param_grad.h"
#include "autograd/require.h"
#include "autograd/tape.h"
#include "core/error.h"
#include "core/text.h"
#include "kernels/basic.h"
#include "kernels/bias.h"
#include "kernels/gemm.h"
#include "kernels/low_rank.h"

namespace fovea {

namespace {

// [B,H,N,D] as its memory [B,N,H,D], masked where asked; no copy if it lies so already.
Tensor packed(Ctx& ctx, const Tensor& x, const Tensor& valid, const char* op) {
  const Tensor rows = x.permute({0, 2, 1, 3});
  if (!valid.defined()) return contiguous(ctx, rows, op);
  const Tensor from = x.strides()[3] == 1 || x.size(3) == 1 ? x : contiguous(ctx, x, op);
  Tensor out = ctx.empty(rows.shape(), x.dtype(), op);
  FOVEA_ON(ctx.device, keep_valid(ctx.stream.ref(), out.permute({0, 2, 1, 3}).view(), from.view(),
                                  valid.view()));
  return out;
}

// How one call cuts x [B,N,H,D] into matrices: blocks of c tokens, and groups of features that
// share a map (all heads, or one).
struct Cut {
  std::int64_t batch, blocks, c, groups, width, slots, tokens;

  std::int64_t features() const { return groups * width; }
  // Rows `rows` apart blocks: [B, blocks, G, rows, width] of a packed [B, all, H, D].
  View matrices(const Tensor& x, std::int64_t rows) const {
    View out = x.view();
    out.rank = 5;
    const std::int64_t dims[] = {batch, blocks, groups, rows, width},
                       strides[] = {x.size(1) * features(), rows * features(), width, features(),
                                    1};
    for (int i = 0; i < 5; ++i) {
      out.dim[i] = dims[i];
      out.stride[i] = strides[i];
    }
    return out;
  }
  // The map [(G,) R, L], its first c columns, the same for every sample and block.
  View map(const Tensor& e) const {
    View out = e.view();
    const std::int64_t columns = e.size(-1);
    out.rank = 5;
    const std::int64_t dims[] = {batch, blocks, groups, slots, c},
                       strides[] = {0, 0, slots * columns, columns, 1};
    for (int i = 0; i < 5; ++i) {
      out.dim[i] = dims[i];
      out.stride[i] = strides[i];
    }
    return out;
  }
};

// One sample and block of a view that matrices() or map() made: [G, rows, columns].
View matrix_of(const View& all, std::int64_t sample) {
  View out = all;
  out.rank = 3;
  for (int i = 0; i < 3; ++i) {
    out.dim[i] = all.dim[i + 2];
    out.stride[i] = all.stride[i + 2];
  }
  out.data = static_cast<char*>(all.data) + sample * all.stride[0] * size_of(all.dtype);
  return out;
}

// de += sum over samples and blocks of d x^T. Blocks: each its own product, then summed, since a
// sequence has many; whole sequences one after the other, since their products are as large as e.
void add_map_gradient(Ctx& c, const Cut& cut, const Tensor& de, const View& d, const View& x) {
  if (cut.blocks == 1) {
    const View to = cut.map(de);
    for (std::int64_t b = 0; b < cut.batch; ++b) {
      FOVEA_ON(c.device, gemm(c.stream.ref(), matrix_of(to, 0), matrix_of(d, b), matrix_of(x, b),
                              false, true, 1.0));
    }
    return;
  }
  const Tensor each = c.empty({cut.batch, cut.blocks, cut.groups, cut.slots, cut.c}, de.dtype());
  FOVEA_ON(c.device, gemm(c.stream.ref(), each.view(), d, x, false, true, 0.0));
  FOVEA_ON(c.device, column_sum(c.stream.ref(), de.reshape({de.numel()}).view(),
                                each.reshape({cut.batch * cut.blocks, de.numel()}).view()));
}

Cut cut_of(const char* op, const Var& x, const Var& e, const Tensor& valid, bool by_blocks) {
  const bool shapes = x.shape().rank() == 4 && (e.shape().rank() == 2 || e.shape().rank() == 3) &&
                      (e.shape().rank() == 2 || e.size(0) == x.size(1));
  if (!shapes || !is_float(x.dtype()) || e.dtype() != x.dtype()) {
    throw ShapeError(cat(op, ": x is ", x.shape().str(), " ", name_of(x.dtype()), " and e ",
                         e.shape().str(), " ", name_of(e.dtype()),
                         "; needed are x [B,H,N,D], e [R,L] or [H,R,L] of one float dtype"));
  }
  const std::int64_t tokens = x.size(2), columns = e.value().size(-1);
  if (!by_blocks && tokens > columns)
    throw ShapeError(cat(op, ": x has ", tokens, " tokens, but e maps at most ", columns));
  if (valid.defined()) require_tensor(op, "valid", valid, {x.size(0), tokens}, DType::u8);
  const bool one_map = e.shape().rank() == 2;
  Cut cut{};
  cut.batch = x.size(0);
  cut.blocks = by_blocks ? (columns > 0 ? tokens / columns : 0) : 1;
  cut.c = by_blocks ? columns : tokens;
  cut.groups = one_map ? 1 : x.size(1);
  cut.width = one_map ? x.size(1) * x.size(3) : x.size(3);
  cut.slots = e.value().size(-2);
  cut.tokens = tokens;
  return cut;
}

Var compress(Ctx& ctx, const char* op, const Var& x, const Var& e, const Tensor& valid,
             bool by_blocks) {
  const Cut cut = cut_of(op, x, e, valid, by_blocks);
  const std::int64_t heads = x.size(1), width = x.size(3), slots = cut.blocks * cut.slots;
  const Tensor from = packed(ctx, x.value(), valid, op), map = contiguous(ctx, e.value(), op);
  const Tensor out = ctx.empty({cut.batch, slots, heads, width}, x.dtype(), op);
  FOVEA_ON(ctx.device, gemm(ctx.stream.ref(), cut.matrices(out, cut.slots), cut.map(map),
                            cut.matrices(from, cut.c), false, false, 0.0));
  auto backward = [op, cut, heads, width, from = e.grad() ? from : Tensor{}, map, valid,
                   gx = x.grad(), ge = e.grad()](Ctx& c, std::span<const Tensor> dout) {
    const Tensor d = contiguous(c, dout[0].permute({0, 2, 1, 3}), op);
    const View slots_of_d = cut.matrices(d, cut.slots);
    if (ge) {
      const Tensor de = grad_buffer(c, ge, map.shape(), map.dtype());
      add_map_gradient(c, cut, de, slots_of_d, cut.matrices(from, cut.c));
      give_buffer(c, ge, de, map.dtype());
    }
    if (!gx) return;
    const Shape shape{cut.batch, cut.tokens, heads, width};
    const bool all = cut.blocks * cut.c == cut.tokens;
    const Tensor dx = all ? c.empty(shape, map.dtype(), op) : c.zeros(shape, map.dtype(), op);
    FOVEA_ON(c.device, gemm(c.stream.ref(), cut.matrices(dx, cut.c), cut.map(map), slots_of_d, true,
                            false, 0.0));
    const Tensor tokens = dx.permute({0, 2, 1, 3});
    if (valid.defined())
      FOVEA_ON(c.device, keep_valid(c.stream.ref(), tokens.view(), tokens.view(), valid.view()));
    give(c, gx, tokens);
  };
  return finish(ctx, op, out.permute({0, 2, 1, 3}), {x.grad(), e.grad()}, std::move(backward));
}

}  // namespace

Var compress_tokens(Ctx& ctx, const Var& x, const Var& e, const Tensor& valid) {
  return compress(ctx, "compress_tokens", x, e, valid, false);
}

Var compress_blocks(Ctx& ctx, const Var& x, const Var& e, const Tensor& valid) {
  return compress(ctx, "compress_blocks", x, e, valid, true);
}

Var renormalise_slots(Ctx& ctx, const Var& slots, const Var& e, const Tensor& valid,
                      std::int64_t tokens) {
  constexpr const char* kOp = "renormalise_slots";
  const bool shapes = slots.shape().rank() == 4 && e.shape().rank() >= 2 && e.shape().rank() <= 3 &&
                      e.value().size(-2) == slots.size(2) &&
                      (e.shape().rank() == 2 || e.size(0) == slots.size(1)) &&
                      tokens <= e.value().size(-1) && e.dtype() == slots.dtype();
  if (!shapes) {
    throw ShapeError(cat(kOp, ": slots are ", slots.shape().str(), " and e ", e.shape().str(),
                         " for ", tokens, " tokens; needed are [B,H,R,D] and [R,L] or [H,R,L]"));
  }
  const std::int64_t groups = e.shape().rank() == 2 ? 1 : e.size(0), count = slots.size(2);
  const DType acc = acc_of(slots.dtype());
  const Tensor map = contiguous(ctx, e.value(), kOp).reshape({groups, count, e.value().size(-1)});
  const Tensor mass = ctx.empty({slots.size(0), groups, count}, acc, kOp),
               total = ctx.empty({groups, count}, acc, kOp);
  FOVEA_ON(ctx.device, slot_mass_forward(ctx.stream.ref(), mass.view(), total.view(), map.view(),
                                         valid.view(), tokens));
  const auto like = [&](Ctx& c) {
    return c.empty({slots.size(0), count, slots.size(1), slots.size(3)}, slots.dtype(), kOp)
        .permute({0, 2, 1, 3});
  };
  const Tensor out = like(ctx);
  FOVEA_ON(ctx.device, slot_scale_forward(ctx.stream.ref(), out.view(), slots.view(), mass.view(),
                                          total.view()));
  auto backward = [out, mass, total, map, valid, tokens, shape = e.shape(), gs = slots.grad(),
                   ge = e.grad()](Ctx& c, std::span<const Tensor> dout) {
    const Tensor share = ge ? c.empty(mass.shape(), mass.dtype(), kOp) : Tensor{};
    const Tensor dx = gs ? c.empty(out.shape(), out.dtype(), kOp) : Tensor{};
    FOVEA_ON(c.device, slot_scale_backward(c.stream.ref(), dx.view(), share.view(), dout[0].view(),
                                           out.view(), mass.view(), total.view()));
    if (gs) give(c, gs, dx);
    if (!ge) return;
    const Tensor de = grad_buffer(c, ge, shape, map.dtype());
    FOVEA_ON(c.device,
             slot_mass_backward(c.stream.ref(), de.reshape(map.shape()).view(), share.view(),
                                mass.view(), total.view(), map.view(), valid.view(), tokens));
    give_buffer(c, ge, de, map.dtype());
  };
  return finish(ctx, kOp, out, {slots.grad(), e.grad()}, std::move(backward));
}

}  // namespace fovea
