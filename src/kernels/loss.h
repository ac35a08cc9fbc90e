#pragma once
// Softmax cross-entropy of rows of logits.

#include "kernels/dispatch.h"

namespace fovea {

// For each row of logits, with t its target: loss = lse - logits[t], lse the log of the sum of
// exponentials; correct = whether t is the first largest logit. Target -1: loss and correct are 0.
//   logits [m, V] any float dtype, rows V or more apart; lse [m] of acc(logits), assigned;
//   targets i32, -1 or in [0, V); loss of acc(logits), correct u8, assigned; an empty `correct` is
//   not wanted.
//   rows: empty, then all have m entries; else i32 [m], and row r of logits stands for entry
//   rows[r] of targets, loss and correct, whose other entries stay as they are.
FOVEA_KERNEL(cross_entropy_forward, StreamRef, const View& loss, const View& correct,
             const View& lse, const View& logits, const View& targets, const View& rows)

// dlogits = dloss (softmax(logits) - onehot(t)), assigned; zero where the target is -1.
//   dlogits [m, V] any float dtype; it may be logits. Where its rows are more than V apart, the
//   elements between them become zero: a product may read whole rows. dloss: one element of acc, or
//   empty for 1. targets, rows and lse as in forward.
FOVEA_KERNEL(cross_entropy_backward, StreamRef, const View& dlogits, const View& logits,
             const View& lse, const View& targets, const View& rows, const View& dloss)

// Both in one pass over the rows where one fits on chip: the gradient is written over the logits.
// Arguments as above, without `correct`; what is computed is what the two calls compute.
FOVEA_KERNEL(cross_entropy_both, StreamRef, const View& loss, const View& lse, const View& logits,
             const View& targets, const View& rows, const View& dloss)

// to[rows[r],:] = alpha[0] from[r,:]; other rows of `to` stay. One float dtype, contiguous; rows
// i32, distinct; alpha one element of f32 or f64.
FOVEA_KERNEL(scaled_rows_forward, StreamRef, const View& to, const View& from, const View& rows,
             const View& alpha)

}  // namespace fovea
