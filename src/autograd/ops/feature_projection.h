#pragma once
// Small matrices on the feature axis of heads: applied to tokens, or folded into the weights that
// make the tokens. Source: spa.md 1.4, 4.1.

#include <vector>

#include "autograd/ctx.h"
#include "autograd/var.h"

namespace fovea {

// y = x S, group of heads by group.
//   x [B,H,N,D] any strides. s [G,in,out] of acc(x): `in` is D times the heads that a group has
//   side by side, so there are H D / in groups; G divides that number, and neighbouring groups
//   share a matrix. y [B,heads,N,W] in x's dtype, stored as [B,N,heads,W]: `heads` is a multiple of
//   the groups, which the columns of a group are cut into.
// Products are of x's dtype, S rounded to it, f32 accumulation; ds is acc, and sums over all
// tokens. Throws ShapeError.
Var project_features(Ctx& ctx, const Var& x, const Var& s, std::int64_t heads);

// A stretch of rows of a packed weight, cut into groups of `in` rows; s undefined: taken as it is.
struct FoldPart {
  std::int64_t rows = 0;
  Var s = {};  // [G,in,out] of acc
};
// The weight, or bias, whose product is that of w and then of S: group g's rows become S^T w_g.
//   w [R,C] or [R], contiguous, R the rows of all parts; out [R',C] or [R'] in w's dtype, computed
//   in acc and rounded once. The gradient of `out` is gathered in acc. Throws ShapeError.
Var fold_features(Ctx& ctx, const Var& w, const std::vector<FoldPart>& parts);

// Columns side by side: a [G,R,A], b [G,R,B] of one float dtype to [G,R,A+B]. Throws ShapeError.
Var join_features(Ctx& ctx, const Var& a, const Var& b);

// Matrix i of the result is matrix i G / count of s [G,R,C]; count a multiple of G. Throws
// ShapeError.
Var repeat_matrices(Ctx& ctx, const Var& s, std::int64_t count);

// y[b,h,n,:] = factor[h] x[b,h,n,:].   x [B,H,N,D] any strides; factor [H] of acc(x); y in x's
// dtype, stored as [B,N,H,D]. Throws ShapeError.
Var scale_heads(Ctx& ctx, const Var& x, const Var& factor);

}  // namespace fovea
