#pragma once
// Element-wise nonlinearities, softmax and dropout. Contiguous; one float dtype a call, computed in
// acc.

#include "core/philox.h"
#include "kernels/dispatch.h"

namespace fovea {

// y = 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). Any shape; y may be x.
FOVEA_KERNEL(gelu_forward, StreamRef, const View& y, const View& x)
// dx = dy gelu'(x), assigned; dx may be dy.
FOVEA_KERNEL(gelu_backward, StreamRef, const View& dx, const View& dy, const View& x)

// y = silu(gate) * up with x = [gate | up]. x [rows, 2 F], y [rows, F].
FOVEA_KERNEL(swiglu_forward, StreamRef, const View& y, const View& x)
// dx [rows, 2 F] is assigned.
FOVEA_KERNEL(swiglu_backward, StreamRef, const View& dx, const View& dy, const View& x)

// Softmax of each row; a row of -inf alone is NaN.
FOVEA_KERNEL(softmax_forward, StreamRef, const View& y, const View& x)
// dx = y (dy - sum(dy y)), assigned.
FOVEA_KERNEL(softmax_backward, StreamRef, const View& dx, const View& dy, const View& y)

// y = x / (1 - p) where kept, else 0; its own derivative, so backward is the same call on dy.
//   Element e of sample b (axis 0) is dropped iff the top 24 bits of random_bits(key, (first_sample
//   + b) n + e) are below round(p 2^24); n elements a sample. y may be x.
FOVEA_KERNEL(dropout_forward, StreamRef, const View& y, const View& x, double p, const Key& key)

}  // namespace fovea
