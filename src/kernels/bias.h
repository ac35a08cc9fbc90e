#pragma once
// What stands around a product: bias gradients, and bias with activation in one pass.

#include "kernels/dispatch.h"

namespace fovea {

// total[j] += the sum over rows of x[r,j]. x [rows, cols] any float dtype, contiguous; total [cols]
// of acc(x), accumulated. Blocks of 128 rows are summed, then added in their order.
FOVEA_KERNEL(column_sum, StreamRef, const View& total, const View& x)

// out = gelu(product + bias) (activation.h). All [rows, cols], contiguous, of one float dtype; bias
// [cols] of it, may be empty. The sum is not stored: backward makes it again.
FOVEA_KERNEL(bias_gelu_forward, StreamRef, const View& out, const View& product, const View& bias)
// dpre = dout gelu'(product + bias), assigned; dpre may be dout. dbias [cols] of acc gets the
// column sums of dpre added, as column_sum does; empty means "not wanted".
FOVEA_KERNEL(bias_gelu_backward, StreamRef, const View& dpre, const View& dbias, const View& dout,
             const View& product, const View& bias)

}  // namespace fovea
