#pragma once
// One row out of each sequence's rows.

#include "kernels/dispatch.h"

namespace fovea {

// Which of a sequence's rows answer for it: row 0, the mean of the real ones, or the last real one.
enum class Pool { first, mean, last };

// out[b,:] = x[b,0,:], the mean over real n of x[b,n,:], or x[b,n,:] for the largest real n. For
// mean and last, a sequence without real rows gives zero. Sums are made in acc(x).
//   x [B,N,C] contiguous, any float dtype; out [B,C] of the same; key_valid u8 [B,N] contiguous, 1
//   = real, or empty: all are.
FOVEA_KERNEL(pool_forward, StreamRef, const View& out, const View& x, const View& key_valid,
             Pool rule)
// dx [B,N,C] is assigned: what each row's share of dout [B,C] is, zero where it has none.
FOVEA_KERNEL(pool_backward, StreamRef, const View& dx, const View& dout, const View& key_valid,
             Pool rule)

}  // namespace fovea
