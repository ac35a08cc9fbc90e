#pragma once
// Products with a sparse matrix in compressed rows (CSR).

#include "kernels/dispatch.h"

namespace fovea {

// y = x a^T for a sparse a [out, in]: y[r, j] is the sum over row j's entries of value x[r,
// column].
//   x [rows, in], y [rows, out] of one float dtype, contiguous; y is assigned.
//   a: offsets [out + 1] i32, row j's entries are [offsets[j], offsets[j + 1]); columns [entries]
//   i32 in [0, in), ascending within a row; values [entries] in x's dtype.
// Summed in f64 for f64, else in f32, and rounded once; the CPU sums a row's entries in their
// order.
FOVEA_KERNEL(csr_spmm, StreamRef, const View& y, const View& x, const View& offsets,
             const View& columns, const View& values)

namespace meta {

inline void csr_spmm(StreamRef stream, const View& y, const View& x, const View& offsets,
                     const View& columns, const View& values) {
  count(stream, y, x, offsets, columns, values);
  static_cast<CostCounter*>(stream.native)->flops +=
      2 * static_cast<double>(y.rows()) * static_cast<double>(values.numel());
}

}  // namespace meta

}  // namespace fovea
