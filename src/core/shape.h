#pragma once
// Shapes: up to six sizes, a value.

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "core/view.h"

namespace fovea {

class Shape {
 public:
  Shape() = default;
  // Throws ShapeError if there are more than kMaxRank sizes or one is negative.
  Shape(std::initializer_list<std::int64_t> sizes);

  int rank() const { return rank_; }
  std::int64_t operator[](int axis) const { return sizes_[static_cast<std::size_t>(axis)]; }
  std::int64_t& operator[](int axis) { return sizes_[static_cast<std::size_t>(axis)]; }
  std::int64_t numel() const;
  // Size of the last axis (1 for a scalar), and the product of all others.
  std::int64_t cols() const { return rank_ == 0 ? 1 : (*this)[rank_ - 1]; }
  std::int64_t rows() const { return cols() == 0 ? 0 : numel() / cols(); }
  // This shape with its last size replaced.
  Shape with_cols(std::int64_t cols) const;
  // This shape without its last axis.
  Shape without_cols() const;
  void push_back(std::int64_t size);
  // Row-major strides in elements.
  Shape strides() const;
  std::string str() const;  // "[2,4,128,64]"

  friend bool operator==(const Shape& a, const Shape& b) {
    if (a.rank_ != b.rank_) return false;
    for (int i = 0; i < a.rank_; ++i) {
      if (a[i] != b[i]) return false;
    }
    return true;
  }

 private:
  std::array<std::int64_t, kMaxRank> sizes_{};
  int rank_ = 0;
};

}  // namespace fovea
