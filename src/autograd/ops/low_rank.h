#pragma once
// Maps of the token axis, and several attentions put together as one.

#include <vector>

#include "autograd/ctx.h"
#include "autograd/ops/attention.h"
#include "autograd/var.h"

namespace fovea {

// out[b,h,r,:] = sum over tokens j with valid[b,j] != 0 of e[(h,) r, j] x[b,h,j,:]: tokens become R
// slots. What invalid tokens hold has no effect, and they get no gradient.
//   x [B,H,N,D] any strides; e [R,L] or one a head [H,R,L], N <= L; valid u8 [B,N] or undefined.
//   out [B,H,R,D] in x's dtype, stored as [B,R,H,D].
// Source: baselines.md 8.1. Throws ShapeError.
Var compress_tokens(Ctx& ctx, const Var& x, const Var& e, const Tensor& valid);

// The same for every complete block of c tokens by itself, e [R,c] or [H,R,c] being shared by the
// blocks: out [B,H, floor(N / c) R, D], R slots a block. Tokens behind the last complete block are
// not read. Source: baselines.md 8.3.
Var compress_blocks(Ctx& ctx, const Var& x, const Var& e, const Tensor& valid);

// Divides slot r by the share of |e[r,:]| that lies on the valid ones of the first `tokens` tokens
// (on all of those if `valid` is undefined), 0 where there are none.
//   slots [B,H,R,D], e as in compress_tokens. Source: baselines.md 8.1, `renormalise`.
Var renormalise_slots(Ctx& ctx, const Var& slots, const Var& e, const Tensor& valid,
                      std::int64_t tokens);

// Many queries of few samples as more samples of fewer queries: where keys are few, their gradients
// are then summed by more blocks of a GPU.
//   split_tokens: x [B,H,N,D] to [B G, H, N / G, D], token n of sample b to sample b G + n G / N; a
//   view of what lies as [B,N,H,D]. join_tokens: the way back. repeat_samples: [B, ...] to [B G,
//   ...] sample b G times, gradients summed in acc, in order. Throw ShapeError.
Var split_tokens(Ctx& ctx, const Var& x, std::int64_t groups);
Var join_tokens(Ctx& ctx, const Var& x, std::int64_t groups);
Var repeat_samples(Ctx& ctx, const Var& x, std::int64_t groups);

// Attention over the union of disjoint sets of keys, from its parts: L = log sum_p exp lse_p,
// o = sum_p exp(lse_p - L) o_p. At most kMostMerged parts of one shape (kernels/merge.h).
//   alone: what a row takes that sees no key in any part, [B,H,N,Dv], with the log-sum-exp
//   alone_lse; only rows of valid u8 [B,N], if that is defined. Undefined: 0 and -inf.
// Source: baselines.md 15.3. Throws ShapeError.
AttentionResult merge_attention(Ctx& ctx, const std::vector<AttentionResult>& parts,
                                const Var& alone = {}, const Tensor& valid = {},
                                double alone_lse = 0);

}  // namespace fovea
