// merge_attention of low_rank.h.

#include "kernels/merge.h"

#include <utility>

#include "autograd/ops/low_rank.h"
#include "autograd/require.h"
#include "autograd/tape.h"
#include "core/error.h"
#include "core/text.h"

namespace fovea {

namespace {

constexpr const char* kOp = "merge_attention";

void require_parts(const std::vector<AttentionResult>& parts, const Var& alone,
                   const Tensor& valid) {
  if (parts.empty() || parts.size() > kMostMerged)
    throw ShapeError(
        cat(kOp, ": there are ", parts.size(), " parts, but must be 1 to ", kMostMerged));
  const Var& o = parts[0].o;
  require_float(kOp, "o", o.value());
  if (o.shape().rank() != 4)
    throw ShapeError(cat(kOp, ": o is ", o.shape().str(), ", but must be [B,H,N,Dv]"));
  for (const AttentionResult& part : parts) {
    require_tensor(kOp, "o", part.o.value(), o.shape(), o.dtype());
    require_tensor(kOp, "lse", part.lse.value(), o.shape().without_cols(), acc_of(o.dtype()));
  }
  if (alone.defined()) require_tensor(kOp, "alone", alone.value(), o.shape(), o.dtype());
  if (valid.defined()) require_tensor(kOp, "valid", valid, {o.size(0), o.size(2)}, DType::u8);
}

// What the kernel reads, and the tensors that hold it.
struct Held {
  std::vector<Tensor> o, lse;  // [B,N,H,Dv], [B,H,N]
  Tensor alone, valid;
  double alone_lse = 0;

  MergeParts parts() const {
    MergeParts out;
    out.count = static_cast<int>(o.size());
    for (std::size_t p = 0; p < o.size(); ++p) {
      out.o[p] = o[p].view();
      out.lse[p] = lse[p].view();
    }
    return out;
  }
  MergeAlone own() const { return {alone.view(), valid.view(), alone_lse}; }
};

}  // namespace

AttentionResult merge_attention(Ctx& ctx, const std::vector<AttentionResult>& parts,
                                const Var& alone, const Tensor& valid, double alone_lse) {
  require_parts(parts, alone, valid);
  Held held;
  held.alone = alone.value();
  held.valid = valid;
  held.alone_lse = alone_lse;
  std::vector<GradRef> inputs;
  for (const AttentionResult& part : parts) {
    held.o.push_back(contiguous(ctx, part.o.value().permute({0, 2, 1, 3}), kOp));
    held.lse.push_back(contiguous(ctx, part.lse.value(), kOp));
    inputs.push_back(part.o.grad());
    inputs.push_back(part.lse.grad());
  }
  inputs.push_back(alone.grad());
  const Tensor o = ctx.empty(held.o[0].shape(), held.o[0].dtype()),
               lse = ctx.empty(held.lse[0].shape(), held.lse[0].dtype());
  FOVEA_ON(ctx.device,
           merge_forward(ctx.stream.ref(), o.view(), lse.view(), held.parts(), held.own()));
  auto backward = [held, lse, inputs](Ctx& c, std::span<const Tensor> dout) {
    Held into;
    for (std::size_t p = 0; p < held.o.size(); ++p) {
      into.o.push_back(c.empty_like(held.o[p], kOp));
      into.lse.push_back(c.empty_like(held.lse[p], kOp));
    }
    const Tensor dv = inputs.back() ? c.empty_like(held.alone, kOp) : Tensor{};
    const Tensor d_o =
        dout[0].defined() ? contiguous(c, dout[0].permute({0, 2, 1, 3}), kOp) : Tensor{};
    const Tensor d_lse = contiguous(c, dout[1], kOp);
    FOVEA_ON(c.device, merge_backward(c.stream.ref(), into.parts(), dv.view(), d_o.view(),
                                      d_lse.view(), lse.view(), held.parts(), held.own()));
    for (std::size_t p = 0; p < held.o.size(); ++p) {
      give(c, inputs[2 * p], into.o[p].permute({0, 2, 1, 3}));
      give(c, inputs[2 * p + 1], into.lse[p]);
    }
    give(c, inputs.back(), dv);
  };
  const Tensor outs[] = {o.permute({0, 2, 1, 3}), lse};
  std::vector<Var> both = finish(ctx, kOp, outs, inputs, std::move(backward));
  return {std::move(both[0]), std::move(both[1])};
}

}  // namespace fovea
