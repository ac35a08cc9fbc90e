#pragma once
// Plain arithmetic and changes of layout.

#include <vector>

#include "autograd/ctx.h"
#include "autograd/var.h"

namespace fovea {

Var add(Ctx& ctx, const Var& a, const Var& b);  // equal shapes
Var mul(Ctx& ctx, const Var& a, const Var& b);  // equal shapes
Var scale(Ctx& ctx, const Var& x, double alpha);
Var sum(Ctx& ctx, const Var& x);  // [] of acc(x)
// Another shape of the same elements; contiguous in, a view out.
Var reshape(Ctx& ctx, const Var& x, Shape shape);
// Axis i of the result is axis order[i] of x; a contiguous copy out.
Var permute(Ctx& ctx, const Var& x, const std::vector<int>& order);
// x of `dtype`, rounded to nearest even.
Var cast(Ctx& ctx, const Var& x, DType dtype);

// Cuts a packed projection into heads, without copies.
//   x [B,N,W] with W the sum over parts of heads_i * width_i, part after part, head-major inside a
//   part. returns one [B,heads_i,N,width_i] strided view of x for each part.
// The one op whose outputs alias x; its backward packs the parts' gradients into one tensor,
// without copies where they lie packed already.
struct HeadPart {
  int heads, width;
};
std::vector<Var> split_heads(Ctx& ctx, const Var& x, const std::vector<HeadPart>& parts);
// The packed [B,N,W] of which these [B,heads_i,N,width_i] are all parts, one behind the other;
// undefined if there is none.
Tensor packed_heads(std::span<const Tensor> parts);
// The way back: x [B,H,N,D] of any strides to [B,N,H*D] contiguous; no copy if x already lies so.
Var merge_heads(Ctx& ctx, const Var& x);

}  // namespace fovea
