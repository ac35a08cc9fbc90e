#pragma once
// Stretches of tokens, taken out and put back.

#include "autograd/ctx.h"
#include "autograd/var.h"

namespace fovea {

// Tokens first to first + count - 1, the last one first if `reversed`.
struct TokenRange {
  std::int64_t first = 0, count = 0;
  bool reversed = false;
  // Those of a mask or of segments [B,N]; undefined stays so.
  Tensor of(Ctx& ctx, const Tensor& tokens) const;
};

// x [B,H,N,D] of any strides to [B,H,count,D], contiguous. Throws ShapeError.
Var take_tokens(Ctx& ctx, const Var& x, const TokenRange& range);
// The way back: x [B,H,count,D] to [B,H,tokens,D], whose other tokens are `rest`.
Var put_tokens(Ctx& ctx, const Var& x, std::int64_t tokens, const TokenRange& range,
               double rest = 0);

}  // namespace fovea
