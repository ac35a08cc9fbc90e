#pragma once
// tril(A B^T) C without an N x N matrix, in chunks. Source: baselines.md 9.1.

#include "autograd/ctx.h"
#include "autograd/var.h"

namespace fovea {

// One factor of a causal product: a row a token, or the columns of a map that all tokens share.
struct CausalFactor {
  Var value;            // [B,Hk,N,w]; or a map [w,L], [Hk,w,L] with L >= N
  bool is_map = false;  // row j is column `first` + j of the map, in every sample
};

// What causal products go on from, and leave behind: sum over the tokens so far of b_j^T c_j.
struct CausalState {
  Tensor sum;              // [B,Hk,m,p] of acc, contiguous; undefined: none
  std::int64_t first = 0;  // tokens before these: where maps begin
};

// out_i = sum over j <= i of <a_i, b_j> c_j.
//   a [B,H,N,m], b rows of m, c rows of p, one float dtype; H a multiple of Hk, head h reads head
//   h / (H/Hk). out [B,H,N,p] of `out` (a's dtype, or acc of it), contiguous.
// A row's bits depend on itself and the rows before it only. Memory O(N (chunk + m p / chunk)).
// With a state nothing is recorded, and state.sum is left as it is after the last token.
// Throws ShapeError.
Var causal_product(Ctx& ctx, const Var& a, const CausalFactor& b, const CausalFactor& c, DType out,
                   std::int64_t chunk, const CausalState& state = {});

struct SlotSoftmax {
  Var p;    // as s, of `dtype`
  Var lse;  // [B,H,N]
};
// Softmax over the last axis of s [B,H,N,R] (acc of `dtype`); rows of valid u8 [B,N] = 0, if that
// is defined, are 0 with lse -inf.
SlotSoftmax slot_softmax(Ctx& ctx, const Var& s, const Tensor& valid, DType dtype);

// x with the rows of invalid tokens zeroed, contiguous. x [B,H,N,D], valid u8 [B,N] or undefined
// (then x itself).
Var zero_invalid(Ctx& ctx, const Var& x, const Tensor& valid);

}  // namespace fovea
