#pragma once
// One factor a head.

#include "kernels/dispatch.h"

namespace fovea {

// y[b,h,n,:] = factor[h] x[b,h,n,:].
//   x, y [B,H,N,D] of one float dtype, unit last stride, others free; y may be x. factor [H] of
//   acc(x), contiguous.
FOVEA_KERNEL(head_scale_forward, StreamRef, const View& y, const View& x, const View& factor)
// total[h] += the sum over b, n and features of a[b,h,n,:] b[b,h,n,:], in a fixed order.
//   a, b [B,H,N,D] as above; total [H] of acc(a), contiguous.
FOVEA_KERNEL(head_product_sum, StreamRef, const View& total, const View& a, const View& b)

}  // namespace fovea
