#pragma once
// Exact attention that stores its N x M probabilities: the oracle, in loops anyone can believe.
// Source: baselines.md 2.1 and 2.2.

#include "kernels/attention_scores.h"

namespace fovea {

// Shapes and conventions as flash_forward. p [B,H,N,M] of acc, contiguous, is assigned the
// normalised probabilities before dropout. scores.plan is not read: a bias of -inf says the same.
FOVEA_KERNEL(attention_reference_forward, StreamRef, const View& o, const View& lse, const View& p,
             const View& q, const View& k, const View& v, const AttentionScores& scores)

// dlse or dout may be empty. p is the forward's.
FOVEA_KERNEL(attention_reference_backward, StreamRef, const AttentionGradients& gradients,
             const View& dout, const View& dlse, const View& p, const View& q, const View& k,
             const View& v, const AttentionScores& scores)

namespace meta {

inline void attention_reference_forward(StreamRef stream, const View& o, const View& lse,
                                        const View& p, const View& q, const View& k, const View& v,
                                        const AttentionScores& scores) {
  count(stream, o, lse, p, q, k, v, scores.bias);
  count_attention(stream, q, v, visible_pairs(q, k, scores.causal), 1, 1);
}
inline void attention_reference_backward(StreamRef stream, const AttentionGradients& d,
                                         const View& dout, const View& dlse, const View& p,
                                         const View& q, const View& k, const View& v,
                                         const AttentionScores& scores) {
  count(stream, d.dq, d.dk, d.dv, d.dbias, dout, dlse, p, q, k, v);
  // Useful work does not depend on the kernel: the score product counts although it is not
  // repeated.
  count_attention(stream, q, v, visible_pairs(q, k, scores.causal), 3, 2);
}

}  // namespace meta

}  // namespace fovea
