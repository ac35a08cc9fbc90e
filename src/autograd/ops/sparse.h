#pragma once
// Products with a fixed sparse matrix.

#include "autograd/ctx.h"
#include "autograd/var.h"

namespace fovea {

// The nonzero entries of a matrix [rows, cols] in compressed rows: those of row r are
// [offsets[r], offsets[r + 1]), by ascending column.
struct CompressedRows {
  Tensor offsets, columns, values;  // [rows + 1] i32, [entries] i32, [entries] float
};

// A sparse S [in, out], and its transpose for the products that need whole columns of S.
struct SparseMatrix {
  std::int64_t in = 0, out = 0;
  CompressedRows rows, columns;  // of S, and of S^T

  std::int64_t entries() const { return rows.values.numel(); }
};

// The nonzero entries of `dense` [in, out], a float tensor on the CPU, with values in `dtype` and
// everything on the stream's device, in persistent memory. Throws ShapeError: not two axes, or more
// than 2^31 - 1 entries.
SparseMatrix compress(Stream& stream, const Tensor& dense, DType dtype);

// y = x S.   x [..., in], S [in, out] with values in x's dtype; y [..., out] in x's dtype.
// f32 accumulation. S is fixed: it has no gradient; dx = dy S^T. Throws ShapeError.
// Source: SPA, S as it stands left of the attention product (Q' = Q S). Fold S into the weights
// before it where nothing stands between (spec 4.1); this is for the rest.
Var sparse_linear(Ctx& ctx, const Var& x, const SparseMatrix& s);

}  // namespace fovea
