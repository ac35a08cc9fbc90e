#pragma once
// One source for f64 and vectors: Lane<T> is a vector of f32 for the types computed in f32, and one
// double for f64, so that a kernel written once is a plain loop there.

#include <cmath>
#include <cstdint>
#include <new>

#include "kernels/cpu/simd.h"

namespace fovea::cpu::FOVEA_ISA {

template <class T>
struct Lane {
  using V = Floats;
  static constexpr int width = kLanes;
};
template <>
struct Lane<double> {
  using V = double;
  static constexpr int width = 1;
};

inline double load(const double* at) {
  return *at;
}
inline void store(double* at, double value) {
  *at = value;
}
inline double sum(double v) {
  return v;
}
inline double max_lane(double v) {
  return v;
}
inline double max(double a, double b) {
  return a > b ? a : b;
}
inline double sqrt(double v) {
  return std::sqrt(v);
}
inline double tanh(double v) {
  return std::tanh(v);
}

// Every lane is `value`.
template <class T>
typename Lane<T>::V every(double value) {
  if constexpr (Lane<T>::width == 1) {
    return value;
  } else {
    return splat(static_cast<float>(value));
  }
}

// How many lanes a step of for_lanes touches: all, or the first n.
struct Whole {};

template <class T>
auto take(const T* at, Whole) {
  return load(at);
}
template <class T>
auto take(const T* at, Whole, Compute<T> /*rest*/) {
  return load(at);
}
template <class T>
Floats take(const T* at, std::int64_t n, float rest = 0) {
  return load_some(at, n, rest);
}
template <class T, class V>
void put(T* at, V value, Whole) {
  store(at, value);
}
template <class T>
void put(T* at, Floats value, std::int64_t n) {
  store_some(at, value, n);
}

// Calls fn(i, count) for i = 0, width, 2 width, ... below n; count is Whole, and the number of
// elements left in the last step. T decides the width.
template <class T, class F>
void for_lanes(std::int64_t n, F&& fn) {
  constexpr int width = Lane<T>::width;
  std::int64_t i = 0;
  for (; i + width <= n; i += width)
    fn(i, Whole{});
  if constexpr (width > 1) {
    if (i < n) fn(i, n - i);
  }
}

// Elements of element-wise work done by one thread at a time.
constexpr std::int64_t kGrain = 16384;
// The rows of `cols` elements that make about one grain; a function of cols alone.
inline std::int64_t grain_rows(std::int64_t cols) {
  const std::int64_t rows = kGrain / (cols < 1 ? 1 : cols);
  return rows < 1 ? 1 : rows;
}

// Uninitialised memory of one kernel call.
template <class T>
class Scratch {
 public:
  explicit Scratch(std::int64_t n)
      : data_(
            static_cast<T*>(::operator new(static_cast<std::size_t>(n) * sizeof(T), kAlignment))) {}
  ~Scratch() { ::operator delete(data_, kAlignment); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  T* data() const { return data_; }
  T& operator[](std::int64_t i) const { return data_[i]; }

 private:
  static constexpr std::align_val_t kAlignment{64};
  T* data_;
};

}  // namespace fovea::cpu::FOVEA_ISA
