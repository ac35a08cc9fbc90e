// The ops of elementwise.h that move elements without changing them.

#include <string>
#include <utility>

#include "autograd/ops/elementwise.h"
#include "autograd/require.h"
#include "autograd/tape.h"
#include "core/error.h"
#include "core/text.h"
#include "kernels/basic.h"

namespace fovea {

namespace {

// Axis i of the result is axis order[i] of x.
View permuted(const View& x, std::span<const int> order) {
  View out = x;
  for (std::size_t i = 0; i < order.size(); ++i) {
    out.dim[i] = x.dim[order[i]];
    out.stride[i] = x.stride[order[i]];
  }
  return out;
}

// The axis that each axis of x becomes; throws unless every axis stands in `order` once.
std::vector<int> inverse_of(std::span<const int> order, const Shape& shape) {
  std::vector<int> inverse(order.size(), -1);
  bool valid = static_cast<int>(order.size()) == shape.rank();
  std::string text;
  for (std::size_t i = 0; i < order.size(); ++i) {
    text += cat(i == 0 ? "" : ",", order[i]);
    valid = valid && order[i] >= 0 && order[i] < shape.rank() &&
            inverse[static_cast<std::size_t>(order[i])] < 0;
    if (valid) inverse[static_cast<std::size_t>(order[i])] = static_cast<int>(i);
  }
  if (!valid)
    throw ShapeError(
        cat("permute: order (", text, ") of ", shape.str(), " must name every axis once"));
  return inverse;
}

Tensor permuted_copy(Ctx& ctx, const Tensor& x, std::span<const int> order) {
  const View from = permuted(x.view(), order);
  Shape shape;
  for (int i = 0; i < from.rank; ++i)
    shape.push_back(from.dim[i]);
  Tensor out = ctx.empty(shape, x.dtype(), "permute");
  FOVEA_ON(ctx.device, copy(ctx.stream.ref(), out.view(), from));
  return out;
}

// [B,heads,N,width] as the columns of a packed [B,N,W]; undefined where its strides do not allow
// it.
Tensor columns_of(const Tensor& part) {
  if (!part.defined() || part.rank() != 4) return {};
  const Shape& strides = part.strides();
  const bool fits = part.size(1) == 1 || strides[1] == strides[3] * part.size(3);
  return fits ? part.permute({0, 2, 1, 3}).merge_axes(2) : Tensor{};
}

// Columns [begin, begin + heads width) of packed [B,N,W] as [B,heads,N,width]; no copy.
Tensor part_of(const Tensor& packed, std::int64_t begin, HeadPart part) {
  return packed.slice(2, begin, begin + std::int64_t{part.heads} * part.width)
      .split_axis(2, part.width)
      .permute({0, 2, 1, 3});
}

}  // namespace

Var reshape(Ctx& ctx, const Var& x, Shape shape) {
  const Tensor out = x.value().reshape(shape);
  auto backward = [before = x.shape(), gx = x.grad()](Ctx& c, std::span<const Tensor> dout) {
    give(c, gx, contiguous(c, dout[0]).reshape(before));
  };
  return finish(ctx, "reshape", out, {x.grad()}, std::move(backward));
}

Var permute(Ctx& ctx, const Var& x, const std::vector<int>& order) {
  const std::vector<int> inverse = inverse_of(order, x.shape());
  const Tensor out = permuted_copy(ctx, x.value(), order);
  auto backward = [inverse, gx = x.grad()](Ctx& c, std::span<const Tensor> dout) {
    give(c, gx, permuted_copy(c, dout[0], inverse));
  };
  return finish(ctx, "permute", out, {x.grad()}, std::move(backward));
}

Tensor packed_heads(std::span<const Tensor> parts) {
  std::vector<Tensor> columns;
  for (const Tensor& part : parts) {
    columns.push_back(columns_of(part));
    if (!columns.back().defined()) return {};
  }
  return Tensor::joined(columns, 2);
}

std::vector<Var> split_heads(Ctx& ctx, const Var& x, const std::vector<HeadPart>& parts) {
  std::int64_t width = 0;
  for (const HeadPart& part : parts) {
    FOVEA_ASSERT(part.heads > 0 && part.width > 0);
    width += std::int64_t{part.heads} * part.width;
  }
  if (x.value().rank() != 3 || x.size(2) != width) {
    throw ShapeError(
        cat("split_heads: x is ", x.shape().str(), ", but the parts need [B,N,", width, "]"));
  }
  const Tensor xv = contiguous(ctx, x.value());
  std::vector<Tensor> outs;
  std::int64_t begin = 0;
  for (const HeadPart& part : parts) {
    outs.push_back(part_of(xv, begin, part));
    begin += std::int64_t{part.heads} * part.width;
  }
  auto backward = [parts, shape = x.shape(), dtype = x.dtype(), gx = x.grad()](
                      Ctx& c, std::span<const Tensor> dout) {
    // An attention kernel may have written its gradients where they belong already.
    if (const Tensor whole = packed_heads(dout); whole.defined() && whole.shape() == shape)
      return give(c, gx, whole);
    bool all = true;
    for (const Tensor& part : dout)
      all = all && part.defined();
    const Tensor dx =
        all ? c.empty(shape, dtype, "split_heads") : c.zeros(shape, dtype, "split_heads");
    std::int64_t at = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const Tensor to = part_of(dx, at, parts[i]);
      if (dout[i].defined()) FOVEA_ON(c.device, copy(c.stream.ref(), to.view(), dout[i].view()));
      at += std::int64_t{parts[i].heads} * parts[i].width;
    }
    give(c, gx, dx);
  };
  return finish(ctx, "split_heads", outs, {x.grad()}, std::move(backward));
}

Var merge_heads(Ctx& ctx, const Var& x) {
  if (x.value().rank() != 4) {
    throw ShapeError(cat("merge_heads: x is ", x.shape().str(), ", but must be [B,H,N,D]"));
  }
  const std::int64_t batch = x.size(0), heads = x.size(1), tokens = x.size(2), width = x.size(3);
  const Tensor out =
      contiguous(ctx, x.value().permute({0, 2, 1, 3})).reshape({batch, tokens, heads * width});
  auto backward = [heads, width, gx = x.grad()](Ctx& c, std::span<const Tensor> dout) {
    give(c, gx,
         part_of(contiguous(c, dout[0]), 0, {static_cast<int>(heads), static_cast<int>(width)}));
  };
  return finish(ctx, "merge_heads", out, {x.grad()}, std::move(backward));
}

}  // namespace fovea
