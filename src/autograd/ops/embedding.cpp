#include "autograd/ops/embedding.h"

#include <cmath>
#include <utility>

#include "autograd/param_grad.h"
#include "autograd/require.h"
#include "autograd/tape.h"
#include "core/error.h"
#include "core/text.h"
#include "kernels/embedding.h"

namespace fovea {

namespace {

// On the CPU only: reading ids back from a device would stall it.
void require_in_range(const char* name, const Tensor& ids, std::int64_t rows) {
  if (!ids.device().is_cpu()) return;
  const std::int32_t* const at = ids.data<std::int32_t>();
  for (std::int64_t i = 0; i < ids.numel(); ++i) {
    if (at[i] >= 0 && at[i] < rows) continue;
    throw IoError(cat("embedding: ", name, "[", i / ids.size(-1), ",", i % ids.size(-1), "] is ",
                      at[i], ", but the table has ", rows, " rows"));
  }
}

void require_table(const char* name, const Var& table) {
  require_float("embedding", name, table.value());
  if (table.value().rank() == 2 && table.value().is_contiguous()) return;
  throw ShapeError(cat("embedding: ", name, " is ", table.shape().str(),
                       ", but must be contiguous with two axes"));
}

void require_ids(const Tensor& ids) {
  if (ids.defined() && ids.rank() == 2 && ids.dtype() == DType::i32 && ids.is_contiguous()) return;
  throw ShapeError(cat("embedding: ids are ", ids.defined() ? ids.shape().str() : "undefined",
                       ", but must be contiguous i32 [B,N]"));
}

void require_positions(const Tensor& ids, const Var& table, const Var& positions_table,
                       const Tensor& positions) {
  require_table("positions_table", positions_table);
  const std::int64_t rows = positions_table.size(0);
  require_tensor("embedding", "positions_table", positions_table.value(), {rows, table.size(1)},
                 table.dtype());
  if (positions.defined()) {
    require_tensor("embedding", "positions", positions, ids.shape(), DType::i32);
    require_in_range("positions", positions, rows);
  } else if (ids.size(1) > rows) {
    throw ShapeError(
        cat("embedding: ", ids.size(1), " tokens, but the position table has ", rows, " rows"));
  }
}

}  // namespace

Var embedding(Ctx& ctx, const Tensor& ids, const Var& table, const Var& positions_table,
              const Tensor& positions) {
  require_ids(ids);
  require_table("table", table);
  require_in_range("ids", ids, table.size(0));
  if (positions_table.defined()) require_positions(ids, table, positions_table, positions);
  const Tensor places = positions_table.defined() ? contiguous(ctx, positions) : Tensor();
  const std::int64_t period = ids.size(1);
  const Tensor out = ctx.empty({ids.size(0), period, table.size(1)}, table.dtype());
  FOVEA_ON(ctx.device, embedding_forward(ctx.stream.ref(), out.view(), ids.view(), table.view(),
                                         positions_table.view(), places.view(), period));
  auto backward = [ids, places, period, dtype = table.dtype(), table_shape = table.shape(),
                   positions_shape = positions_table.shape(), gt = table.grad(),
                   gp = positions_table.grad()](Ctx& c, std::span<const Tensor> dout) {
    const Tensor dy = contiguous(c, dout[0]);
    const auto scatter = [&](const GradRef& to, const Shape& shape, const Tensor& rows) {
      if (!to) return;
      const Tensor buffer = grad_buffer(c, to, shape, dtype);
      FOVEA_ON(c.device,
               embedding_backward(c.stream.ref(), buffer.view(), rows.view(), dy.view(), period));
      give_buffer(c, to, buffer, dtype);
    };
    scatter(gt, table_shape, ids);
    scatter(gp, positions_shape, places);
  };
  return finish(ctx, "embedding", out, {table.grad(), positions_table.grad()}, std::move(backward));
}

Tensor sinusoidal_table(std::int64_t positions, std::int64_t width, DType dtype) {
  FOVEA_ASSERT(dtype == DType::f32 || dtype == DType::f64);
  std::vector<double> values;
  values.reserve(static_cast<std::size_t>(positions * width));
  for (std::int64_t p = 0; p < positions; ++p) {
    for (std::int64_t i = 0; i < width; ++i) {
      const double exponent = -static_cast<double>(i - i % 2) / static_cast<double>(width);
      const double angle = static_cast<double>(p) * std::pow(10000.0, exponent);
      values.push_back(i % 2 == 0 ? std::sin(angle) : std::cos(angle));
    }
  }
  return Tensor::from(values, {positions, width}, dtype);
}

}  // namespace fovea
