#pragma once
// What causal products in chunks need around their matrix products, and a softmax over slots.
// Source: baselines.md 9.1, 8.4.

#include "kernels/dispatch.h"

namespace fovea {

// Zeroes what stands right of the diagonal of every matrix. x [..., rows, cols] float, contiguous.
FOVEA_KERNEL(keep_lower, StreamRef, const View& x)

// out[p,t,:] = first[p,:] + sum of in[p,s,:] over s < t (reverse: s > t), added block by block in
// acc. in, out [P,T,E] float dtypes, contiguous; first [P,E] float or empty: 0; last [P,E] as
// first, or empty: gets the whole sum. first may be last.
FOVEA_KERNEL(scan_blocks, StreamRef, const View& out, const View& in, const View& first,
             const View& last, bool reverse)

// p = softmax of each row of s, lse its log-sum-exp; rows [b,h,n] with valid[b,n] = 0 become 0 with
// lse -inf, whatever s holds. s [B,H,N,R] of acc(p), p as s of any float dtype, lse [B,H,N] of acc,
// contiguous; valid u8 [B,N], any strides, or empty.
FOVEA_KERNEL(slot_softmax_forward, StreamRef, const View& p, const View& lse, const View& s,
             const View& valid)
// ds = p (dp - <p, dp> + dlse), assigned, 0 in rows of valid = 0; ds, dp as p; dp or dlse may be
// empty: zero.
FOVEA_KERNEL(slot_softmax_backward, StreamRef, const View& ds, const View& dp, const View& dlse,
             const View& p, const View& valid)

}  // namespace fovea
