#include "autograd/ops/attention.h"

#include <array>
#include <cmath>
#include <utility>

#include "autograd/ops/elementwise.h"
#include "autograd/require.h"
#include "autograd/tape.h"
#include "core/error.h"
#include "core/text.h"
#include "kernels/attention_reference.h"
#include "kernels/basic.h"
#include "kernels/flash.h"

namespace fovea {

namespace {

void require(bool ok, const char* op, const std::string& what) {
  if (!ok) throw ShapeError(cat(op, ": ", what));
}

void require_shapes(const char* op, const Var& q, const Var& k, const Var& v) {
  require(q.shape().rank() == 4 && k.shape().rank() == 4 && v.shape().rank() == 4, op,
          cat("q, k and v must be [B,H,N,D], but are ", q.shape().str(), ", ", k.shape().str(),
              ", ", v.shape().str()));
  const bool fit = q.size(0) == k.size(0) && q.size(3) == k.size(3) && k.size(0) == v.size(0) &&
                   k.size(1) == v.size(1) && k.size(2) == v.size(2);
  require(fit, op,
          cat("q ", q.shape().str(), ", k ", k.shape().str(), " and v ", v.shape().str(),
              " do not fit together"));
  require(k.size(1) > 0 && q.size(1) % k.size(1) == 0, op,
          cat(q.size(1), " query heads are no multiple of ", k.size(1), " key/value heads"));
  require(q.dtype() == k.dtype() && q.dtype() == v.dtype() && is_float(q.dtype()), op,
          cat("q ", name_of(q.dtype()), ", k ", name_of(k.dtype()), " and v ", name_of(v.dtype()),
              " must be one float type"));
}

void require_mask(const char* op, const char* name, const Tensor& mask, DType dtype, std::int64_t b,
                  std::int64_t n) {
  if (!mask.defined()) return;
  require(mask.shape() == Shape{b, n} && mask.dtype() == dtype, op,
          cat(name, " is ", name_of(mask.dtype()), " ", mask.shape().str(), ", but must be ",
              name_of(dtype), " ", Shape{b, n}.str()));
}

// The mask with its defaults filled in, and checked.
AttentionMask resolve(const char* op, const Var& q, const Var& k, const Var& bias,
                      AttentionMask mask) {
  const std::int64_t b = q.size(0), h = q.size(1), n = q.size(2), m = k.size(2);
  if (!mask.query_valid.defined() && n == m) mask.query_valid = mask.key_valid;
  if (!mask.key_segments.defined()) mask.key_segments = mask.query_segments;
  require(mask.query_segments.defined() == mask.key_segments.defined(), op,
          "key_segments need query_segments");
  require_mask(op, "key_valid", mask.key_valid, DType::u8, b, m);
  require_mask(op, "query_valid", mask.query_valid, DType::u8, b, n);
  require_mask(op, "key_segments", mask.key_segments, DType::i32, b, m);
  require_mask(op, "query_segments", mask.query_segments, DType::i32, b, n);
  if (bias.defined()) {
    const Shape& s = bias.shape();
    const bool fit = s.rank() == 4 && (s[0] == 1 || s[0] == b) && (s[1] == 1 || s[1] == h) &&
                     s[2] == n && s[3] == m;
    require(fit && bias.dtype() == q.dtype(), op,
            cat("bias is ", name_of(bias.dtype()), " ", s.str(), ", but must be ",
                name_of(q.dtype()), " [1|", b, ", 1|", h, ", ", n, ", ", m, "]"));
  }
  const Tensor& slopes = mask.alibi_slopes;
  require(!slopes.defined() || (slopes.shape() == Shape{h} && slopes.dtype() == acc_of(q.dtype())),
          op, cat("alibi_slopes must be ", name_of(acc_of(q.dtype())), " [", h, "]"));
  require(mask.dropout >= 0 && mask.dropout < 1, op,
          cat("dropout is ", mask.dropout, ", but must be in [0, 1)"));
  require(mask.softcap >= 0 && std::isfinite(mask.softcap), op,
          cat("softcap is ", mask.softcap, ", but must be 0 or more, and finite"));
  if (mask.plan != nullptr) {
    const PlanShape& p = mask.plan->shape();
    const bool shared = mask.plan->view().batches == 1;
    require((shared || p.batch == b) && p.heads == h && p.kv_heads == k.size(1) && p.queries == n &&
                p.keys == m && p.causal == mask.causal,
            op,
            cat("the plan is for ", p.batch, " samples, ", p.heads, " and ", p.kv_heads,
                " heads, N = ", p.queries, " and M = ", p.keys, p.causal ? ", causal" : "",
                ", but q is ", q.shape().str(), " and k ", k.shape().str(),
                mask.causal ? ", causal" : ""));
    require(mask.plan->device() == q.value().device(), op, "the plan is on another device");
  }
  if (mask.scale == 0) mask.scale = 1 / std::sqrt(static_cast<double>(q.size(3)));
  return mask;
}

// Holds the tensors alive; the kernels see its views.
AttentionScores scores_of(const AttentionMask& mask, const Tensor& bias) {
  AttentionScores out;
  out.scale = mask.scale;
  out.softcap = mask.softcap;
  out.causal = mask.causal;
  out.key_valid = mask.key_valid.view();
  out.query_valid = mask.query_valid.view();
  out.query_segments = mask.query_segments.view();
  out.key_segments = mask.key_segments.view();
  out.bias = bias.view();
  out.alibi_slopes = mask.alibi_slopes.view();
  out.dropout = mask.dropout;
  out.dropout_key = mask.dropout_key;
  if (mask.plan != nullptr) out.plan = &mask.plan->view();
  return out;
}

// The tiled kernels walk rows: a copy where the last axis has no unit stride.
Tensor unit_rows(Ctx& ctx, const Tensor& x, const char* op) {
  const bool walkable = !x.defined() || x.strides()[x.rank() - 1] == 1 || x.size(-1) == 1;
  return walkable ? x : contiguous(ctx, x, op);
}

// [B,H,N,Dv] stored as [B,N,H,Dv].
Tensor empty_output(Ctx& ctx, const Var& q, const Var& v, const char* op) {
  return ctx.empty({q.size(0), q.size(2), q.size(1), v.size(3)}, q.dtype(), op)
      .permute({0, 2, 1, 3});
}

// Gradients of one call: allocated where wanted, given away at the end.
struct Gradients {
  GradRef gq, gk, gv, gb;
  Tensor dq, dk, dv, db;

  void allocate(Ctx& c, const char* op, const Tensor& q, const Tensor& k, const Tensor& v,
                const Tensor& bias) {
    const std::array parts{q, k, v};
    if (const Tensor packed = packed_heads(parts); gq && gk && gv && packed.defined()) {
      // Laid out like q, k and v, so that split_heads has nothing to pack.
      const Tensor whole = c.empty(packed.shape(), q.dtype(), op);
      std::int64_t begin = 0;
      for (const auto& [to, like] : {std::pair(&dq, &q), std::pair(&dk, &k), std::pair(&dv, &v)}) {
        const std::int64_t width = like->size(1) * like->size(3);
        *to =
            whole.slice(2, begin, begin + width).split_axis(2, like->size(3)).permute({0, 2, 1, 3});
        begin += width;
      }
    } else {
      if (gq) dq = c.empty(q.shape(), q.dtype(), op);
      if (gk) dk = c.empty(k.shape(), k.dtype(), op);
      if (gv) dv = c.empty(v.shape(), v.dtype(), op);
    }
    if (gb) db = c.empty(bias.shape(), acc_of(bias.dtype()), op);
  }
  AttentionGradients views() const { return {dq.view(), dk.view(), dv.view(), db.view()}; }
  void give_all(Ctx& c, const char* op, DType dtype) {
    give(c, gq, dq);
    give(c, gk, dk);
    give(c, gv, dv);
    if (gb && !gb->is_parameter && db.dtype() != dtype) {
      Tensor narrow = c.empty(db.shape(), dtype, op);
      FOVEA_ON(c.device, copy(c.stream.ref(), narrow.view(), db.view()));
      db = narrow;
    }
    give(c, gb, db);
  }
};

AttentionResult finish_attention(Ctx& ctx, const char* op, const Tensor& o, const Tensor& lse,
                                 const Var& q, const Var& k, const Var& v, const Var& bias,
                                 Backward backward) {
  const Tensor outs[] = {o, lse};
  std::vector<Var> vars =
      finish(ctx, op, outs, {q.grad(), k.grad(), v.grad(), bias.grad()}, std::move(backward));
  return {std::move(vars[0]), std::move(vars[1])};
}

}  // namespace

AttentionResult flash_attention(Ctx& ctx, const Var& q, const Var& k, const Var& v, const Var& bias,
                                const AttentionMask& asked) {
  constexpr const char* kOp = "flash_attention";
  require_shapes(kOp, q, k, v);
  AttentionMask mask = resolve(kOp, q, k, bias, asked);
  if (!ctx.training) mask.dropout = 0;
  const Tensor qt = unit_rows(ctx, q.value(), kOp), kt = unit_rows(ctx, k.value(), kOp),
               vt = unit_rows(ctx, v.value(), kOp);
  const Tensor o = empty_output(ctx, q, v, kOp);
  const Tensor lse = ctx.empty({q.size(0), q.size(1), q.size(2)}, acc_of(q.dtype()), kOp);
  FOVEA_ON(ctx.device, flash_forward(ctx.stream.ref(), o.view(), lse.view(), qt.view(), kt.view(),
                                     vt.view(), scores_of(mask, bias.value())));
  auto backward = [qt, kt, vt, o, lse, mask, bt = bias.value(), gq = q.grad(), gk = k.grad(),
                   gv = v.grad(), gb = bias.grad()](Ctx& c, std::span<const Tensor> dout) {
    Gradients d{gq, gk, gv, gb, {}, {}, {}, {}};
    d.allocate(c, kOp, qt, kt, vt, bt);
    const Tensor d_o = unit_rows(c, dout[0], kOp), d_lse = contiguous(c, dout[1], kOp);
    FOVEA_ON(c.device,
             flash_backward(c.stream.ref(), d.views(), d_o.view(), d_lse.view(), qt.view(),
                            kt.view(), vt.view(), o.view(), lse.view(), scores_of(mask, bt)));
    d.give_all(c, kOp, qt.dtype());
  };
  return finish_attention(ctx, kOp, o, lse, q, k, v, bias, std::move(backward));
}

AttentionResult reference_attention(Ctx& ctx, const Var& q, const Var& k, const Var& v,
                                    const Var& bias, const AttentionMask& asked) {
  constexpr const char* kOp = "reference_attention";
  require_shapes(kOp, q, k, v);
  require(asked.plan == nullptr, kOp, "takes no plan; use flash_attention");
  AttentionMask mask = resolve(kOp, q, k, bias, asked);
  if (!ctx.training) mask.dropout = 0;
  const Tensor &qt = q.value(), &kt = k.value(), &vt = v.value();
  const Tensor o = empty_output(ctx, q, v, kOp);
  const Tensor lse = ctx.empty({q.size(0), q.size(1), q.size(2)}, acc_of(q.dtype()), kOp);
  const Tensor p = ctx.empty({q.size(0), q.size(1), q.size(2), k.size(2)}, acc_of(q.dtype()), kOp);
  FOVEA_ON(ctx.device,
           attention_reference_forward(ctx.stream.ref(), o.view(), lse.view(), p.view(), qt.view(),
                                       kt.view(), vt.view(), scores_of(mask, bias.value())));
  auto backward = [qt, kt, vt, p, mask, bt = bias.value(), gq = q.grad(), gk = k.grad(),
                   gv = v.grad(), gb = bias.grad()](Ctx& c, std::span<const Tensor> dout) {
    Gradients d{gq, gk, gv, gb, {}, {}, {}, {}};
    d.allocate(c, kOp, qt, kt, vt, bt);
    const Tensor d_lse = contiguous(c, dout[1], kOp);
    FOVEA_ON(c.device, attention_reference_backward(c.stream.ref(), d.views(), dout[0].view(),
                                                    d_lse.view(), p.view(), qt.view(), kt.view(),
                                                    vt.view(), scores_of(mask, bt)));
    d.give_all(c, kOp, qt.dtype());
  };
  return finish_attention(ctx, kOp, o, lse, q, k, v, bias, std::move(backward));
}

}  // namespace fovea
