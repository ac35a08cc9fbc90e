#include "core/shape.h"

#include "core/error.h"
#include "core/text.h"

namespace fovea {

Shape::Shape(std::initializer_list<std::int64_t> sizes) {
  for (const std::int64_t size : sizes)
    push_back(size);
}

void Shape::push_back(std::int64_t size) {
  if (rank_ == kMaxRank)
    throw ShapeError(cat("shape: more than ", kMaxRank, " axes after ", str()));
  if (size < 0) throw ShapeError(cat("shape: size ", size, " is negative after ", str()));
  sizes_[static_cast<std::size_t>(rank_++)] = size;
}

std::int64_t Shape::numel() const {
  std::int64_t n = 1;
  for (int i = 0; i < rank_; ++i)
    n *= (*this)[i];
  return n;
}

Shape Shape::with_cols(std::int64_t cols) const {
  if (rank_ == 0) throw ShapeError("shape: a scalar has no last axis");
  Shape out = *this;
  out[rank_ - 1] = cols;
  return out;
}

Shape Shape::without_cols() const {
  if (rank_ == 0) throw ShapeError("shape: a scalar has no last axis");
  Shape out = *this;
  out.sizes_[static_cast<std::size_t>(--out.rank_)] = 0;
  return out;
}

Shape Shape::strides() const {
  Shape out = *this;
  std::int64_t stride = 1;
  for (int i = rank_ - 1; i >= 0; --i) {
    out[i] = stride;
    stride *= (*this)[i];
  }
  return out;
}

std::string Shape::str() const {
  std::string out = "[";
  for (int i = 0; i < rank_; ++i)
    out += cat(i == 0 ? "" : ",", (*this)[i]);
  return out + "]";
}

}  // namespace fovea
