#include "autograd/ops/round_attention.h"

#include <array>
#include <cmath>
#include <utility>

#include "autograd/ops/elementwise.h"
#include "autograd/require.h"
#include "autograd/tape.h"
#include "core/error.h"
#include "core/text.h"
#include "kernels/flash.h"
#include "kernels/merge.h"

namespace fovea {

namespace {

constexpr const char* kOp = "round_attention";

void require_call(const Var& q, const Var& k, const Var& v, const AttentionMask& mask,
                  const AttentionRounds& rounds) {
  require_float(kOp, "q", q.value());
  const bool four = q.shape().rank() == 4 && v.shape().rank() == 4;
  if (!four || rounds.count < 1 || rounds.count > kMostMerged || rounds.plan == nullptr)
    throw ShapeError(cat(kOp, ": q is ", q.shape().str(), " and v ", v.shape().str(),
                         ", but must be [B,H,N,*], with a plan of 1 to ", kMostMerged, " rounds"));
  require_tensor(kOp, "k", k.value(), q.shape(), q.dtype());
  require_tensor(kOp, "v", v.value(), {q.size(0), q.size(1), q.size(2), v.size(3)}, q.dtype());
  if (mask.key_valid.defined())
    require_tensor(kOp, "key_valid", mask.key_valid, {q.size(0), q.size(2)}, DType::u8);
  const PlanShape wanted{
      rounds.count * q.size(0), q.size(1), q.size(1), q.size(2), q.size(2), mask.causal};
  const bool fits = rounds.plan->shape() == wanted && rounds.plan->device() == q.value().device();
  if (!fits) throw ShapeError(cat(kOp, ": the plan is for other tokens than ", q.shape().str()));
  if (mask.dropout > 0 && rounds.dropout_keys.size() != static_cast<std::size_t>(rounds.count))
    throw ShapeError(cat(kOp, ": dropout needs a key for each of ", rounds.count, " rounds"));
}

// x as it is for one round a call, or for all rounds of one sample at once.
View repeated(const Tensor& x, std::int64_t times) {
  View out = x.view();
  if (!out || times == 1) return out;
  out.dim[0] = times;
  out.stride[0] = 0;
  return out;
}

// All rounds of one forward, and what its backward keeps.
struct Rounds {
  Tensor q, k, v, o, lse;  // o [R B, N, H, Dv], lse [R B, H, N] of every round
  Tensor total;            // lse of all rounds
  AttentionMask mask;
  AttentionRounds how;

  std::int64_t batch() const { return q.size(0); }
  // Rounds that a call of the kernels takes.
  std::int64_t at_once() const { return batch() == 1 && mask.dropout <= 0 ? how.count : 1; }
  // Samples r B .. of round r, and as many rounds as a call takes.
  Tensor of_call(const Tensor& x, std::int64_t round) const {
    return x.slice(0, round * batch(), (round + at_once()) * batch());
  }
  // Calls fn(first round, q, k, v, o, scores).
  template <class F>
  void for_calls(F&& fn) const {
    for (std::int64_t r = 0; r < how.count; r += at_once()) {
      const TilePlan plan = how.plan->samples(r * batch(), at_once() * batch());
      AttentionScores scores;
      scores.scale = mask.scale;
      scores.causal = mask.causal;
      scores.key_valid = scores.query_valid = repeated(mask.key_valid, at_once());
      scores.dropout = mask.dropout;
      if (mask.dropout > 0) scores.dropout_key = how.dropout_keys[static_cast<std::size_t>(r)];
      scores.plan = &plan;
      fn(r, repeated(q, at_once()), repeated(k, at_once()), repeated(v, at_once()),
         of_call(o, r).permute({0, 2, 1, 3}).view(), scores);
    }
  }
  MergeParts parts(const Tensor& values, const Tensor& sums) const {
    MergeParts out;
    out.count = static_cast<int>(how.count);
    for (int r = 0; r < out.count; ++r) {
      out.o[r] = values.slice(0, r * batch(), (r + 1) * batch()).view();
      out.lse[r] = sums.slice(0, r * batch(), (r + 1) * batch()).view();
    }
    return out;
  }
  MergeAlone alone() const { return {v.view(), mask.key_valid.view(), how.alone_lse}; }
};

Tensor unit_rows(Ctx& ctx, const Tensor& x) {
  const bool walkable = x.strides()[3] == 1 || x.size(3) == 1;
  return walkable ? x : contiguous(ctx, x, kOp);
}

// Gradients of x by round, and one part more if there is another share.
struct Shares {
  Tensor all;  // [parts, numel of x]
  Shape shape;

  Shares(Ctx& ctx, const GradRef& wanted, const Tensor& x, std::int64_t parts) : shape(x.shape()) {
    if (wanted) all = ctx.empty({parts, x.numel()}, x.dtype(), kOp);
  }
  // [R B, H, N, D] or part of it.
  View rounds(std::int64_t first, std::int64_t count) const {
    if (!all.defined()) return {};
    return all.slice(0, first, first + count)
        .reshape({count * shape[0], shape[1], shape[2], shape[3]})
        .view();
  }
  // The parts are given back.
  void give_sum(Ctx& ctx, const GradRef& to) {
    if (!all.defined()) return;
    const Tensor sum = ctx.empty(shape, all.dtype(), kOp);
    FOVEA_ON(ctx.device,
             sum_parts(ctx.stream.ref(), sum.reshape({sum.numel()}).view(), all.view()));
    all = {};
    give(ctx, to, sum);
  }
};

// Assigns the gradients of all rounds, and of what lone tokens take, the last part of dv.
void share_gradients(Ctx& ctx, const Rounds& of, std::span<const Tensor> dout, const Shares& dq,
                     const Shares& dk, const Shares& dv) {
  const Tensor d_values = ctx.empty_like(of.o, kOp), d_sums = ctx.empty_like(of.lse, kOp);
  const Tensor d_o =
      dout[0].defined() ? contiguous(ctx, dout[0].permute({0, 2, 1, 3}), kOp) : Tensor{};
  const Tensor d_lse = contiguous(ctx, dout[1], kOp);
  FOVEA_ON(ctx.device, merge_backward(ctx.stream.ref(), of.parts(d_values, d_sums),
                                      dv.rounds(of.how.count, 1), d_o.view(), d_lse.view(),
                                      of.total.view(), of.parts(of.o, of.lse), of.alone()));
  of.for_calls([&](std::int64_t r, const View& q, const View& k, const View& v, const View& o,
                   const AttentionScores& scores) {
    const std::int64_t count = of.at_once();
    const AttentionGradients into{dq.rounds(r, count), dk.rounds(r, count), dv.rounds(r, count),
                                  View{}};
    FOVEA_ON(ctx.device, flash_backward(ctx.stream.ref(), into,
                                        of.of_call(d_values, r).permute({0, 2, 1, 3}).view(),
                                        of.of_call(d_sums, r).view(), q, k, v, o,
                                        of.of_call(of.lse, r).view(), scores));
  });
}

void attend_backward(Ctx& ctx, const Rounds& of, std::span<const Tensor> dout, const GradRef& gq,
                     const GradRef& gk, const GradRef& gv) {
  const std::int64_t rounds = of.how.count;
  Shares dq(ctx, gq, of.q, rounds), dk(ctx, gk, of.k, rounds), dv(ctx, gv, of.v, rounds + 1);
  share_gradients(ctx, of, dout, dq, dk, dv);
  dq.give_sum(ctx, gq);
  dk.give_sum(ctx, gk);
  dv.give_sum(ctx, gv);
}

}  // namespace

AttentionResult round_attention(Ctx& ctx, const Var& q, const Var& k, const Var& v,
                                const AttentionMask& mask, const AttentionRounds& rounds) {
  require_call(q, k, v, mask, rounds);
  Rounds of{.q = unit_rows(ctx, q.value()),
            .k = unit_rows(ctx, k.value()),
            .v = unit_rows(ctx, v.value()),
            .o = {},
            .lse = {},
            .total = {},
            .mask = mask,
            .how = rounds};
  const std::int64_t batch = q.size(0), heads = q.size(1), tokens = q.size(2), width = v.size(3);
  if (!ctx.training) of.mask.dropout = 0;
  if (of.mask.scale == 0) of.mask.scale = 1 / std::sqrt(static_cast<double>(q.size(3)));
  of.o = ctx.empty({rounds.count * batch, tokens, heads, width}, q.dtype(), kOp);
  of.lse = ctx.empty({rounds.count * batch, heads, tokens}, acc_of(q.dtype()), kOp);
  of.total = ctx.empty({batch, heads, tokens}, acc_of(q.dtype()), kOp);
  of.for_calls([&](std::int64_t r, const View& qs, const View& ks, const View& vs, const View& o,
                   const AttentionScores& scores) {
    FOVEA_ON(ctx.device,
             flash_forward(ctx.stream.ref(), o, of.of_call(of.lse, r).view(), qs, ks, vs, scores));
  });
  const Tensor o = ctx.empty({batch, tokens, heads, width}, q.dtype(), kOp);
  FOVEA_ON(ctx.device, merge_forward(ctx.stream.ref(), o.view(), of.total.view(),
                                     of.parts(of.o, of.lse), of.alone()));
  const std::array outs{o.permute({0, 2, 1, 3}), of.total};
  auto backward = [of, gq = q.grad(), gk = k.grad(), gv = v.grad()](Ctx& c,
                                                                    std::span<const Tensor> dout) {
    attend_backward(c, of, dout, gq, gk, gv);
  };
  std::vector<Var> both =
      finish(ctx, kOp, outs, {q.grad(), k.grad(), v.grad()}, std::move(backward));
  return {std::move(both[0]), std::move(both[1])};
}

}  // namespace fovea
