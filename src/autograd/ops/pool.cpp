#include "autograd/ops/pool.h"

#include <utility>

#include "autograd/require.h"
#include "autograd/tape.h"
#include "core/error.h"
#include "core/text.h"

namespace fovea {

Var pool(Ctx& ctx, const Var& x, const Tensor& key_valid, Pool rule) {
  require_float("pool", "x", x.value());
  if (x.shape().rank() != 3 || x.size(1) < 1) {
    throw ShapeError(cat("pool: x is ", x.shape().str(), ", but must be [B,N,C] with N >= 1"));
  }
  const std::int64_t batch = x.size(0), length = x.size(1);
  if (key_valid.defined())
    require_tensor("pool", "key_valid", key_valid, {batch, length}, DType::u8);
  const Tensor xv = contiguous(ctx, x.value()), valid = contiguous(ctx, key_valid);
  const Tensor out = ctx.empty({batch, x.size(2)}, x.dtype());
  FOVEA_ON(ctx.device, pool_forward(ctx.stream.ref(), out.view(), xv.view(), valid.view(), rule));
  auto backward = [valid, rule, shape = x.shape(), gx = x.grad()](Ctx& c,
                                                                  std::span<const Tensor> dout) {
    const Tensor dy = contiguous(c, dout[0]), dx = c.empty(shape, dy.dtype());
    FOVEA_ON(c.device, pool_backward(c.stream.ref(), dx.view(), dy.view(), valid.view(), rule));
    give(c, gx, dx);
  };
  return finish(ctx, "pool", out, {x.grad()}, std::move(backward));
}

}  // namespace fovea
