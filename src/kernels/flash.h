#pragma once
// Exact attention in tiles with an online softmax: no N x M matrix is ever stored.
// Source: baselines.md 2.3 (Dao et al. 2022, Milakov and Gimelshein 2018).

#include "kernels/tile_plan.h"

namespace fovea {

// o = softmax(S) v;  lse_i = log sum_j exp S_ij, natural.
//   q [B,H,N,D], k [B,Hk,M,D], v [B,Hk,M,Dv] one float type, unit last stride, others free; H a
//   multiple of Hk: query head h reads head h / (H/Hk). o [B,H,N,Dv] as q; lse [B,H,N] of acc.
//   A row that sees no key is 0 with lse -inf. What hidden tokens hold has no effect, NaN included.
// A row's bits depend on its query and the keys it sees only: not on its place in a tile, on other
// rows, on later tokens, on padding or on threads. So one decoded row equals its row of a full
// pass. On CUDA: among calls that the same kernel takes, which kernels/cuda/flash.cu picks by
// dtype, widths, alignment and extras, and by lengths in two cases, where sums over keys are split:
// where up to 16 queries meet 1024 keys or more, or up to 128 of few heads 4096, into parts whose
// number follows from the sizes; and lines of a plan that are long beside all others
// (kernels/cuda/flash/pieces.cuh). With scores.plan a key is seen if the masks and the plan's rule
// show it, and tiles that the plan does not list are not read; the plan was built for these lengths
// and heads and this causality. A row's keys are summed in ascending slots, whole tiles and tiles
// seen in part alike, so the same promise holds, and a plan that hides nothing changes no bit (of
// what the same kernel takes).
FOVEA_KERNEL(flash_forward, StreamRef, const View& o, const View& lse, const View& q, const View& k,
             const View& v, const AttentionScores& scores)

// The gradient of <o, dout> + <lse, dlse>; dout [B,H,N,Dv] or dlse [B,H,N] (acc) may be empty:
// zero. o and lse are the forward's. Sums run in a fixed order whatever the threads.
FOVEA_KERNEL(flash_backward, StreamRef, const AttentionGradients& gradients, const View& dout,
             const View& dlse, const View& q, const View& k, const View& v, const View& o,
             const View& lse, const AttentionScores& scores)

namespace meta {

// Pairs that a mean head sees.
inline double seen_pairs(const AttentionScores& scores, const View& q, const View& k) {
  if (scores.plan != nullptr && scores.plan->pairs >= 0) return scores.plan->pairs;
  return visible_pairs(q, k, scores.causal);
}

inline void flash_forward(StreamRef stream, const View& o, const View& lse, const View& q,
                          const View& k, const View& v, const AttentionScores& scores) {
  count(stream, o, lse, q, k, v, scores.bias);
  count_attention(stream, q, v, seen_pairs(scores, q, k), 1, 1);
}
inline void flash_backward(StreamRef stream, const AttentionGradients& d, const View& dout,
                           const View& dlse, const View& q, const View& k, const View& v,
                           const View& o, const View& lse, const AttentionScores& scores) {
  count(stream, d.dq, d.dk, d.dv, d.dbias, dout, dlse, q, k, v, o, lse, scores.bias);
  count_attention(stream, q, v, seen_pairs(scores, q, k), 3, 2);
}

}  // namespace meta

}  // namespace fovea
