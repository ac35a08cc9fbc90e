#pragma once
// What stands around a product: bias gradients, and bias with activation in one pass.

#include "kernels/dispatch.h"

namespace fovea {

// total[j] += the sum over rows of x[r,j]. x [rows, cols] any float dtype, contiguous; total [cols]
// of acc(x), accumulated. Blocks of 128 rows are summed, then added in their order.
FOVEA_KERNEL(column_sum, StreamRef, const View& total, const View& x)

// pre = product + bias and out = gelu(pre) (activation.h). All [rows, cols], contiguous, of one
// float dtype; bias [cols] of it, may be empty; pre may be product.
FOVEA_KERNEL(bias_gelu_forward, StreamRef, const View& out, const View& pre, const View& product,
             const View& bias)
// dpre = dout gelu'(pre), assigned; dpre may be dout. dbias [cols] of acc(pre) gets the column sums
// of dpre added, as column_sum does; empty means "not wanted".
FOVEA_KERNEL(bias_gelu_backward, StreamRef, const View& dpre, const View& dbias, const View& dout,
             const View& pre)

}  // namespace fovea
