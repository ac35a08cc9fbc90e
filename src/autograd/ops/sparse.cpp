#include "autograd/ops/sparse.h"

#include <limits>
#include <utility>
#include <vector>

#include "autograd/require.h"
#include "autograd/tape.h"
#include "core/error.h"
#include "core/text.h"
#include "kernels/spmm.h"

namespace fovea {

namespace {

// The nonzero entries of the matrix whose row r, column c is values[r * row_step + c * col_step].
CompressedRows compressed(Stream& stream, const std::vector<double>& values, std::int64_t rows,
                          std::int64_t cols, std::int64_t row_step, std::int64_t col_step,
                          DType dtype) {
  std::vector<double> offsets{0}, columns, kept;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < cols; ++c) {
      const double value = values[static_cast<std::size_t>(r * row_step + c * col_step)];
      if (value == 0) continue;
      columns.push_back(static_cast<double>(c));
      kept.push_back(value);
    }
    offsets.push_back(static_cast<double>(kept.size()));
  }
  if (kept.size() > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max()))
    throw ShapeError(cat("compress: ", kept.size(), " entries, but 2147483647 is the most"));
  const auto place = [&](const std::vector<double>& from, DType as) {
    const Tensor host = Tensor::from(from, {static_cast<std::int64_t>(from.size())}, as);
    return stream.device().is_cpu() ? host : host.to(stream.device(), stream);
  };
  return {place(offsets, DType::i32), place(columns, DType::i32), place(kept, dtype)};
}

Tensor multiply(Ctx& ctx, const Tensor& x, const CompressedRows& a, Shape shape) {
  Tensor y = ctx.empty(shape, x.dtype(), "sparse_linear");
  FOVEA_ON(ctx.device, csr_spmm(ctx.stream.ref(), y.view(), x.view(), a.offsets.view(),
                                a.columns.view(), a.values.view()));
  return y;
}

}  // namespace

SparseMatrix compress(Stream& stream, const Tensor& dense, DType dtype) {
  require_float("compress", "dense", dense);
  if (dense.rank() != 2)
    throw ShapeError(cat("compress: dense is ", dense.shape().str(), ", but must be [in, out]"));
  const std::int64_t in = dense.size(0), out = dense.size(1);
  const std::vector<double> values = dense.values();
  return {in, out, compressed(stream, values, in, out, out, 1, dtype),
          compressed(stream, values, out, in, 1, out, dtype)};
}

Var sparse_linear(Ctx& ctx, const Var& x, const SparseMatrix& s) {
  require_float("sparse_linear", "x", x.value());
  const Tensor& values = s.rows.values;
  if (x.shape().rank() < 1 || x.shape().cols() != s.in || x.dtype() != values.dtype()) {
    throw ShapeError(cat("sparse_linear: x ", x.shape().str(), " ", name_of(x.dtype()), ", S [",
                         s.in, ",", s.out, "] ", name_of(values.dtype()),
                         "; needed are x [..., in], S [in, out] of one float dtype"));
  }
  const Tensor y = multiply(ctx, contiguous(ctx, x.value()), s.columns, x.shape().with_cols(s.out));
  auto backward = [rows = s.rows, shape = x.shape(), gx = x.grad()](Ctx& c,
                                                                    std::span<const Tensor> dout) {
    give(c, gx, multiply(c, contiguous(c, dout[0]), rows, shape));
  };
  return finish(ctx, "sparse_linear", y, {x.grad()}, std::move(backward));
}

}  // namespace fovea
