#include "autograd/ops/move_tokens.h"

#include <utility>

#include "autograd/tape.h"
#include "core/error.h"
#include "core/text.h"
#include "kernels/move_tokens.h"

namespace fovea {

namespace {

void require_range(const char* op, const Tensor& x, std::int64_t tokens, const TokenRange& range) {
  if (x.rank() != 4)
    throw ShapeError(cat(op, ": x is ", x.shape().str(), ", but must be [B,H,N,D]"));
  if (range.first < 0 || range.count < 0 || range.first + range.count > tokens) {
    throw ShapeError(
        cat(op, ": tokens ", range.first, " to ", range.first + range.count, " of ", tokens));
  }
}

// x with `tokens` tokens: fewer or more than it has.
Tensor moved(Ctx& ctx, const char* op, const Tensor& x, std::int64_t tokens,
             const TokenRange& range, double rest) {
  Tensor out = ctx.empty({x.size(0), x.size(1), tokens, x.size(3)}, x.dtype(), op);
  FOVEA_ON(ctx.device,
           move_tokens(ctx.stream.ref(), out.view(), x.view(), range.first, range.reversed, rest));
  return out;
}

}  // namespace

Tensor TokenRange::of(Ctx& ctx, const Tensor& tokens) const {
  if (!tokens.defined()) return {};
  View from = tokens.view();
  from.rank = 4;
  from.dim[2] = from.dim[1], from.stride[2] = from.stride[1];
  from.dim[1] = from.dim[3] = 1, from.stride[1] = 0, from.stride[3] = 1;
  const Tensor out = ctx.empty({tokens.size(0), 1, count, 1}, tokens.dtype(), "take_tokens");
  FOVEA_ON(ctx.device, move_tokens(ctx.stream.ref(), out.view(), from, first, reversed, 0.0));
  return out.reshape({tokens.size(0), count});
}

Var take_tokens(Ctx& ctx, const Var& x, const TokenRange& range) {
  constexpr const char* kOp = "take_tokens";
  require_range(kOp, x.value(), x.value().rank() == 4 ? x.size(2) : 0, range);
  const Tensor out = moved(ctx, kOp, x.value(), range.count, range, 0);
  auto backward = [tokens = x.size(2), range, gx = x.grad()](Ctx& c, std::span<const Tensor> dout) {
    give(c, gx, moved(c, kOp, dout[0], tokens, range, 0));
  };
  return finish(ctx, kOp, out, {x.grad()}, std::move(backward));
}

Var put_tokens(Ctx& ctx, const Var& x, std::int64_t tokens, const TokenRange& range, double rest) {
  constexpr const char* kOp = "put_tokens";
  require_range(kOp, x.value(), tokens, range);
  if (x.size(2) != range.count)
    throw ShapeError(cat(kOp, ": x is ", x.shape().str(), " for ", range.count, " tokens"));
  const Tensor out = moved(ctx, kOp, x.value(), tokens, range, rest);
  auto backward = [range, gx = x.grad()](Ctx& c, std::span<const Tensor> dout) {
    give(c, gx, moved(c, kOp, dout[0], range.count, range, 0));
  };
  return finish(ctx, kOp, out, {x.grad()}, std::move(backward));
}

}  // namespace fovea
