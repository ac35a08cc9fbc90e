#pragma once
// Filling, copying, converting, adding and summing. Float dtypes are computed in acc.

#include "kernels/dispatch.h"

namespace fovea {

// Every element becomes `value`. x any dtype, contiguous.
FOVEA_KERNEL(fill, StreamRef, const View& x, double value)
// Every element becomes value[0]; x contiguous, both of float dtypes, on one device.
FOVEA_KERNEL(fill_by, StreamRef, const View& x, const View& value)
// to = from, converted; the shapes agree, strides are free, any dtypes.
FOVEA_KERNEL(copy, StreamRef, const View& to, const View& from)
// to += from, element by element; float dtypes, which may differ; `to` contiguous, `from` any
// strides.
FOVEA_KERNEL(accumulate, StreamRef, const View& to, const View& from)
// out = a + b; one float dtype, contiguous, equal element counts.
FOVEA_KERNEL(add_forward, StreamRef, const View& out, const View& a, const View& b)
// out = alpha * a; one float dtype, contiguous.
FOVEA_KERNEL(scale_forward, StreamRef, const View& out, const View& a, double alpha)
// out = alpha[0] * a; alpha a one-element tensor of f32 or f64 on the same device.
FOVEA_KERNEL(scale_by_forward, StreamRef, const View& out, const View& a, const View& alpha)
// out = a * b element by element; one float dtype, contiguous.
FOVEA_KERNEL(mul_forward, StreamRef, const View& out, const View& a, const View& b)
// out[0] = the sum of x. out of acc(x), x contiguous. Pieces of 4,096 elements, added by a binary
// tree over the pieces: the order depends on the count alone.
FOVEA_KERNEL(sum_forward, StreamRef, const View& out, const View& x)

}  // namespace fovea
