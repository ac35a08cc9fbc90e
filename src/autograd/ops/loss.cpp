#include "autograd/ops/loss.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "autograd/ops/linear.h"
#include "autograd/param_grad.h"
#include "autograd/tape.h"
#include "core/error.h"
#include "core/text.h"
#include "kernels/basic.h"
#include "kernels/embedding.h"
#include "kernels/gemm.h"
#include "kernels/loss.h"

namespace fovea {

namespace {

void require_targets(const char* op, const Shape& x, const Tensor& targets) {
  if (targets.defined() && targets.dtype() == DType::i32 && targets.is_contiguous() &&
      targets.numel() == x.rows()) {
    return;
  }
  throw ShapeError(cat(op, ": targets ", targets.shape().str(),
                       targets.defined() ? name_of(targets.dtype()) : " none", " for x ", x.str(),
                       "; needed is one i32 a row"));
}

// The rows that count. Where the host cannot see the targets, all of them.
std::vector<std::int32_t> counted_rows(const char* op, const Tensor& targets,
                                       std::int64_t classes) {
  std::vector<std::int32_t> out;
  const bool visible = targets.device().is_cpu();
  for (std::int64_t row = 0; row < targets.numel(); ++row) {
    const std::int32_t target = visible ? targets.data<std::int32_t>()[row] : 0;
    if (target < -1 || target >= classes) {
      throw IoError(cat(op, ": the target of row ", row, " is ", target,
                        ", but must be -1 (ignored) or in [0, ", classes, ")"));
    }
    if (target >= 0) out.push_back(static_cast<std::int32_t>(row));
  }
  return out;
}

// The same as a tensor; undefined if all rows count, so that nothing needs to be moved.
Tensor row_list(Ctx& ctx, const std::vector<std::int32_t>& counted, std::int64_t rows) {
  if (static_cast<std::int64_t>(counted.size()) == rows) return {};
  Tensor out =
      ctx.empty({static_cast<std::int64_t>(counted.size())}, DType::i32, "linear_cross_entropy");
  if (!ctx.device.is_meta()) std::copy(counted.begin(), counted.end(), out.data<std::int32_t>());
  return out;
}

// Room for each row's results; zero first where some rows will not be written.
CrossEntropy row_results(Ctx& ctx, const char* op, std::int64_t rows, DType acc, bool zero,
                         bool correct) {
  CrossEntropy out;
  out.per_row = zero ? ctx.zeros({rows}, acc, op) : ctx.empty({rows}, acc, op);
  if (correct)
    out.correct = zero ? ctx.zeros({rows}, DType::u8, op) : ctx.empty({rows}, DType::u8, op);
  return out;
}

std::int64_t default_chunk(Device device) {
  constexpr std::int64_t kCpuRows = 4096, kCudaRows = 16384;  // calibration.md 2: nearly free
  return device.acts_as_cuda() ? kCudaRows : kCpuRows;
}

Tensor summed(Ctx& ctx, const Tensor& per_row, const char* op) {
  Tensor out = ctx.empty({}, per_row.dtype(), op);
  FOVEA_ON(ctx.device, sum_forward(ctx.stream.ref(), out.view(), per_row.view()));
  return out;
}

// The rows of x that `rows` names.
Tensor gathered(Ctx& ctx, const Tensor& x, const Tensor& rows) {
  Tensor out = ctx.empty({rows.size(0), x.size(1)}, x.dtype(), "linear_cross_entropy");
  FOVEA_ON(ctx.device, embedding_forward(ctx.stream.ref(), out.view(), rows.view(), x.view(),
                                         View{}, View{}, 1));
  return out;
}

constexpr double kHalfGain = 1024;

// What one pass over the rows leaves for backward, for a gradient `1 / gain` of the sum.
struct HeadGradient {
  Tensor dx;  // [counted rows, C] in x's dtype
  Tensor dw;  // [V or more, C] of acc
  double gain = 1;
};

// Everything of linear_cross_entropy between the checks and the tape.
struct Head {
  Tensor x, w, targets;  // x [rows, C], w [V or more, C]
  Tensor rows;           // i32, the rows that count, ascending; undefined: all
  std::int64_t classes;  // V
  std::int64_t counted;
  std::int64_t chunk_rows;

  void run(Ctx& ctx, const CrossEntropy& out, const HeadGradient& gradient) const {
    const std::int64_t largest = std::min(chunk_rows, counted);
    // In 16 bit a GPU's kernels read and write half the bytes, and its products want one dtype.
    const DType dtype = ctx.device.acts_as_cuda() ? x.dtype() : acc_of(x.dtype());
    const Tensor buffer = ctx.empty({largest, w.size(0)}, dtype, "linear_cross_entropy");
    const Tensor lse = ctx.empty({largest}, acc_of(dtype), "linear_cross_entropy");
    const Tensor gain = gain_of(ctx, dtype);
    for (std::int64_t from = 0; from < counted; from += chunk_rows) {
      const std::int64_t to = std::min(from + chunk_rows, counted);
      run_chunk(ctx, out, gradient, buffer.slice(0, 0, to - from), lse.slice(0, 0, to - from), gain,
                from, to);
    }
  }

 private:
  // What the logits' gradient is multiplied by until it leaves the op: near 1 / V it would be
  // subnormal in f16.
  Tensor gain_of(Ctx& ctx, DType dtype) const {
    if (dtype != DType::f16) return {};
    Tensor gain = ctx.empty({}, DType::f32, "linear_cross_entropy");
    FOVEA_ON(ctx.device, fill(ctx.stream.ref(), gain.view(), kHalfGain));
    return gain;
  }
  void run_chunk(Ctx& ctx, const CrossEntropy& out, const HeadGradient& gradient,
                 const Tensor& wide, const Tensor& lse, const Tensor& gain, std::int64_t from,
                 std::int64_t to) const {
    const Tensor logits = wide.slice(1, 0, classes);
    // Entries of targets and results: those the row list names, or the chunk's own.
    const bool all = !rows.defined();
    const Tensor which = all ? rows : rows.slice(0, from, to);
    const auto part = [&](const Tensor& t) { return all ? t.slice(0, from, to) : t; };
    const Tensor x_chunk = all ? x.slice(0, from, to) : gathered(ctx, x, which);
    const StreamRef stream = ctx.stream.ref();
    FOVEA_ON(ctx.device, gemm(stream, wide.view(), x_chunk.view(), w.view(), false, true, 0.0));
    if (!gradient.dx.defined() && !gradient.dw.defined()) {
      FOVEA_ON(ctx.device, cross_entropy_forward(
                               stream, part(out.per_row).view(), part(out.correct).view(),
                               lse.view(), logits.view(), part(targets).view(), which.view()));
      return;
    }
    FOVEA_ON(ctx.device,
             cross_entropy_both(stream, part(out.per_row).view(), lse.view(), logits.view(),
                                part(targets).view(), which.view(), gain.view()));
    if (gradient.dx.defined()) {
      const Tensor dx = gradient.dx.slice(0, from, to);
      FOVEA_ON(ctx.device, gemm(stream, dx.view(), wide.view(), w.view(), false, false, 0.0));
    }
    if (gradient.dw.defined()) {
      FOVEA_ON(ctx.device,
               gemm(stream, gradient.dw.view(), wide.view(), x_chunk.view(), true, false, 1.0));
    }
  }
};

// dx and dw of a unit gradient, times the gradient that came, to where they belong.
void give_scaled(Ctx& ctx, const HeadGradient& gradient, const Tensor& rows, const Tensor& seed,
                 const Shape& x_shape, DType w_dtype, const GradRef& gx, const GradRef& gw) {
  const StreamRef stream = ctx.stream.ref();
  Tensor factor = seed;
  if (gradient.gain != 1) {
    factor = ctx.empty_like(seed, "linear_cross_entropy");
    FOVEA_ON(ctx.device, scale_forward(stream, factor.view(), seed.view(), 1 / gradient.gain));
  }
  if (gx) {
    const Tensor dx = rows.defined()
                          ? ctx.zeros(x_shape, gradient.dx.dtype(), "linear_cross_entropy")
                          : ctx.empty(x_shape, gradient.dx.dtype(), "linear_cross_entropy");
    FOVEA_ON(ctx.device, scaled_rows_forward(stream, dx.view(), gradient.dx.view(), rows.view(),
                                             factor.view()));
    give(ctx, gx, dx);
  }
  if (gw) {
    // In place: nobody else sees the unit gradient.
    FOVEA_ON(ctx.device,
             scale_by_forward(stream, gradient.dw.view(), gradient.dw.view(), factor.view()));
    if (gw->is_parameter)
      give(ctx, gw, gradient.dw);
    else
      give_buffer(ctx, gw, gradient.dw, w_dtype);
  }
}

}  // namespace

CrossEntropy linear_cross_entropy(Ctx& ctx, const Var& x, const Var& w, const Tensor& targets,
                                  const HeadOptions& options) {
  constexpr const char* kOp = "linear_cross_entropy";
  if (!ctx.fuse) return cross_entropy(ctx, linear(ctx, x, w, {}), targets);
  if (x.shape().rank() < 1 || w.shape().rank() != 2 || x.shape().cols() != w.size(1) ||
      w.dtype() != x.dtype() || options.chunk_rows < 0) {
    throw ShapeError(
        cat(kOp, ": x ", x.shape().str(), " ", name_of(x.dtype()), ", w ", w.shape().str(), " ",
            name_of(w.dtype()), ", chunk_rows ", options.chunk_rows,
            "; needed are x [..., C], w [V, C] of one float dtype and chunk_rows >= 0"));
  }
  require_targets(kOp, x.shape(), targets);
  const std::int64_t n = x.shape().rows(), width = x.shape().cols(), classes = w.size(0);
  const std::vector<std::int32_t> counted = counted_rows(kOp, targets, classes);
  const DType acc = acc_of(x.dtype());
  const Head head{
      x.value().reshape({n, width}),
      options.padded_rows > classes ? w.value().widened(options.padded_rows) : w.value(),
      targets.reshape({n}),
      row_list(ctx, counted, n),
      classes,
      static_cast<std::int64_t>(counted.size()),
      options.chunk_rows > 0 ? options.chunk_rows : default_chunk(ctx.device)};
  HeadGradient gradient;
  const bool ahead = ctx.tape != nullptr && ctx.tape->keeps() && (x.grad() || w.grad());
  CrossEntropy out = row_results(ctx, kOp, n, acc, head.rows.defined(), !ahead);
  if (ahead && x.grad()) gradient.dx = ctx.empty({head.counted, width}, x.dtype());
  if (ahead && w.grad()) gradient.dw = ctx.zeros(head.w.shape(), acc);
  if (ctx.device.acts_as_cuda() && x.dtype() == DType::f16) gradient.gain = kHalfGain;
  head.run(ctx, out, gradient);
  const Tensor total = summed(ctx, out.per_row, kOp);
  if (gradient.dw.defined()) gradient.dw = gradient.dw.slice(0, 0, classes);
  auto backward = [gradient, rows = head.rows, shape = x.shape(), dtype = w.dtype(), gx = x.grad(),
                   gw = w.grad()](Ctx& c, std::span<const Tensor> dout) {
    give_scaled(c, gradient, rows, dout[0], shape, dtype, gx, gw);
  };
  out.sum = finish(ctx, kOp, total, {x.grad(), w.grad()}, std::move(backward));
  return out;
}

CrossEntropy cross_entropy(Ctx& ctx, const Var& logits, const Tensor& targets) {
  constexpr const char* kOp = "cross_entropy";
  if (logits.shape().rank() < 1 || logits.shape().cols() < 1 || !is_float(logits.dtype())) {
    throw ShapeError(cat(kOp, ": logits ", logits.shape().str(), " ", name_of(logits.dtype()),
                         "; needed are [..., V] of a float dtype"));
  }
  require_targets(kOp, logits.shape(), targets);
  const std::int64_t n = logits.shape().rows(), classes = logits.shape().cols();
  counted_rows(kOp, targets, classes);
  const DType acc = acc_of(logits.dtype());
  const Tensor x = logits.value().reshape({n, classes}), lse = ctx.empty({n}, acc);
  CrossEntropy out = row_results(ctx, kOp, n, acc, false, true);
  FOVEA_ON(ctx.device,
           cross_entropy_forward(ctx.stream.ref(), out.per_row.view(), out.correct.view(),
                                 lse.view(), x.view(), targets.view(), View{}));
  const Tensor total = summed(ctx, out.per_row, kOp);
  auto backward = [x, lse, targets, shape = logits.shape(), gx = logits.grad()](
                      Ctx& c, std::span<const Tensor> dout) {
    const Tensor dx = c.empty(x.shape(), x.dtype());
    FOVEA_ON(c.device, cross_entropy_backward(c.stream.ref(), dx.view(), x.view(), lse.view(),
                                              targets.view(), View{}, dout[0].view()));
    give(c, gx, dx.reshape(shape));
  };
  out.sum = finish(ctx, kOp, total, {logits.grad()}, std::move(backward));
  return out;
}

}  // namespace fovea
