#pragma once
// Matrix products.

#include "kernels/dispatch.h"

namespace fovea {

// c = op(a) op(b) + beta c over the last two axes; the axes before them are a batch and agree.
//   op(a) [m,k] (transpose_a: a is [k,m]), op(b) [k,n] (transpose_b: b is [n,k]), c [m,n].
//   Float dtypes, each its own; the last axis has stride 1, rows have a stride of at least their
//   length. Computed and summed in f64 if a or c is f64, else in f32, and rounded once. beta 0 does
//   not read c.
// Without transpose_a a row of c has the same bits however many rows follow it.
// On meta pass `beta` as a double, or its FLOPs are not counted.
FOVEA_KERNEL(gemm, StreamRef, const View& c, const View& a, const View& b, bool transpose_a,
             bool transpose_b, double beta)

// c = op(a) op(b) + bias, which every row gets, in the same pass. bias [n] any float dtype; no
// batch.
FOVEA_KERNEL(gemm_bias, StreamRef, const View& c, const View& a, const View& b, const View& bias,
             bool transpose_a, bool transpose_b)

namespace meta {

inline void count_gemm(StreamRef stream, const View& c, const View& a, bool transpose_a) {
  const double inner = static_cast<double>(a.dim[transpose_a ? a.rank - 2 : a.rank - 1]);
  static_cast<CostCounter*>(stream.native)->flops += 2 * static_cast<double>(c.numel()) * inner;
}
inline void gemm(StreamRef stream, const View& c, const View& a, const View& b, bool transpose_a,
                 bool /*transpose_b*/, double beta) {
  count(stream, c, a, b, beta != 0 ? c : View{});
  count_gemm(stream, c, a, transpose_a);
}
inline void gemm_bias(StreamRef stream, const View& c, const View& a, const View& b,
                      const View& bias, bool transpose_a, bool /*transpose_b*/) {
  count(stream, c, a, b, bias);
  count_gemm(stream, c, a, transpose_a);
}

}  // namespace meta

}  // namespace fovea
