#pragma once
// Normalisation over the last axis. Contiguous. Statistics and parameter gradients are kept in
// acc(x).

#include "kernels/dispatch.h"

namespace fovea {

// y = gamma (x - mean) rstd + beta, rstd = 1/sqrt(var + eps), var with 1/cols.
//   x, y [rows, cols] one float dtype; gamma, beta [cols] of x's dtype, beta may be empty;
//   mean, rstd [rows] of acc, saved for backward.
//   branch: empty, or [rows, cols] as x; then sum = x + branch is written too and is what is
//   normalised.
FOVEA_KERNEL(layer_norm_forward, StreamRef, const View& y, const View& mean, const View& rstd,
             const View& sum, const View& x, const View& branch, const View& gamma,
             const View& beta, double eps)
// dx is assigned: the norm's gradient, plus dsum (the gradient that reaches x past the norm) unless
// empty. dgamma, dbeta [cols] of acc are accumulated, in fixed blocks of rows; empty means "not
// wanted".
//   dbranch_bias: empty, or [cols] of acc, to which the column sums of dx are added: the bias
//   gradient of a projection whose output was `branch`. Needs dx.
FOVEA_KERNEL(layer_norm_backward, StreamRef, const View& dx, const View& dgamma, const View& dbeta,
             const View& dy, const View& dsum, const View& x, const View& gamma, const View& mean,
             const View& rstd, const View& dbranch_bias)

// y = gamma x rstd, rstd = 1/sqrt(mean(x^2) + eps). Shapes as above.
FOVEA_KERNEL(rms_norm_forward, StreamRef, const View& y, const View& rstd, const View& sum,
             const View& x, const View& branch, const View& gamma, double eps)
FOVEA_KERNEL(rms_norm_backward, StreamRef, const View& dx, const View& dgamma, const View& dy,
             const View& dsum, const View& x, const View& gamma, const View& rstd,
             const View& dbranch_bias)

}  // namespace fovea
