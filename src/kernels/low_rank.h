#pragma once
// What maps of the token axis need around their matrix products. Source: baselines.md 8.

#include "kernels/dispatch.h"

namespace fovea {

// to[b,h,n,:] = from[b,h,n,:] where valid[b,n] != 0, else 0, whatever from holds there.
//   to, from [B,H,N,D] of one float dtype, unit last stride, others free; to may be from.
//   valid u8 [B,N], any strides.
FOVEA_KERNEL(keep_valid, StreamRef, const View& to, const View& from, const View& valid)

// any[b, p slots + s] = 1 if a token of block p, [p block, (p + 1) block), is valid, else 0.
//   any u8 [B, blocks * slots] contiguous; valid u8 [B,N] any strides, N >= blocks * block.
FOVEA_KERNEL(any_valid, StreamRef, const View& any, const View& valid, std::int64_t block,
             std::int64_t slots)

// The weight that every slot gives to all tokens, and to the real ones among the first `tokens`:
// total[g,r] = sum_j |e[g,r,j]|, mass[b,g,r] = sum_{j < tokens, valid} |e[g,r,j]|.
//   e [G,R,L] float, contiguous; valid u8 [B,N] or empty; total, mass of acc(e), contiguous.
FOVEA_KERNEL(slot_mass_forward, StreamRef, const View& mass, const View& total, const View& e,
             const View& valid, std::int64_t tokens)
// de[g,r,j] += sign(e[g,r,j]) sum_b share[b,g,r] (1 / total[g,r] - [j real] / mass[b,g,r]), samples
// in order; a mass of 0 adds nothing. de [G,R,L] of acc(e), contiguous; share as mass.
FOVEA_KERNEL(slot_mass_backward, StreamRef, const View& de, const View& share, const View& mass,
             const View& total, const View& e, const View& valid, std::int64_t tokens)
// y[b,h,r,:] = x[b,h,r,:] total[g,r] / mass[b,g,r] (0 where mass is 0), g = h G / H.
//   x, y [B,H,R,D] of one float dtype, any strides.
FOVEA_KERNEL(slot_scale_forward, StreamRef, const View& y, const View& x, const View& mass,
             const View& total)
// dx as the forward on dy, and share[b,g,r] = sum of dy y over the heads of g and the features.
FOVEA_KERNEL(slot_scale_backward, StreamRef, const View& dx, const View& share, const View& dy,
             const View& y, const View& mass, const View& total)

}  // namespace fovea
