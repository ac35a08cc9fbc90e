#pragma once
// A value and where its gradient goes.

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "core/tensor.h"

namespace fovea {

struct Grad;
using GradRef = std::shared_ptr<Grad>;  // null: nobody wants this gradient

// Somebody who will need the column sums of a gradient: a product whose bias was added to every
// row. The one reader that makes the whole gradient may add them in the same pass, and say so.
struct ColumnSums {
  GradRef to;          // the bias's gradient
  bool given = false;  // set by the reader
};

// Where a gradient is gathered during one backward pass.
struct Grad {
  Tensor value;  // activations: undefined until the first gift. Parameters: set beforehand,
                 // in the accumulation dtype; kernels add to it.
  bool is_parameter = false;
  int uses = 0;                             // readers recorded on the tape and not yet run backward
  std::function<void()> on_ready;           // parameters: called once, after the last use
  std::shared_ptr<ColumnSums> column_sums;  // null: nobody asks for them
  bool unrounded = false;  // of a computed weight: what kernels accumulate stays in acc
};

class Var {
 public:
  Var() = default;
  explicit Var(Tensor value, GradRef grad = nullptr)
      : value_(std::move(value)), grad_(std::move(grad)) {}

  bool defined() const { return value_.defined(); }
  const Tensor& value() const { return value_; }
  const GradRef& grad() const { return grad_; }
  bool requires_grad() const { return grad_ != nullptr; }
  // This value with no way back: gradients stop here.
  Var detached() const { return Var(value_); }

  const Shape& shape() const { return value_.shape(); }
  std::int64_t size(int axis) const { return value_.size(axis); }
  std::int64_t numel() const { return value_.numel(); }
  DType dtype() const { return value_.dtype(); }
  View view() const { return value_.view(); }

 private:
  Tensor value_;
  GradRef grad_;
};

// A leaf whose gradient is kept (inputs of checks and of recomputed blocks).
inline Var leaf(Tensor value) {
  return Var(std::move(value), std::make_shared<Grad>());
}

// A parameter-gradient destination for kernels that accumulate: its view, or an empty one when
// nobody wants it.
inline View wanted(const GradRef& grad) {
  return grad ? grad->value.view() : View{};
}

}  // namespace fovea
