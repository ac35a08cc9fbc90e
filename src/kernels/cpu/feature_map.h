#pragma once
// What the CPU's feature maps share. Each family of maps has its file.

#include "core/parallel.h"
#include "kernels/cpu/tile.h"
#include "kernels/cpu/token_runs.h"
#include "kernels/feature_map.h"

namespace fovea::cpu::FOVEA_ISA {

inline double min(double a, double b) {
  return a < b ? a : b;
}

// Rows that one worker maps at a time.
constexpr std::int64_t kFeatureRows = 64;

struct FeatureSizes {
  std::int64_t batch, heads, x_heads, rows, width, features;

  FeatureSizes(const View& y, const View& x)
      : batch(y.dim[0]),
        heads(y.dim[1]),
        x_heads(x.dim[1]),
        rows(y.dim[2]),
        width(x.dim[3]),
        features(y.dim[3]) {}
  std::int64_t group() const { return heads / x_heads; }
  std::int64_t blocks() const { return (rows + kFeatureRows - 1) / kFeatureRows; }
  std::int64_t count(std::int64_t first) const {
    return rows - first < kFeatureRows ? rows - first : kFeatureRows;
  }
  // The first element of row `i` of y's head (b, h), counted in features.
  std::int64_t row(std::int64_t b, std::int64_t h, std::int64_t i) const {
    return (b * heads + h) * rows + i;
  }
};

// Rows [first, first + n) of x's head, converted and times `scale`, with zeros behind the last
// column; invalid rows become zero.
template <class T>
void load_rows(Compute<T>* to, std::int64_t ld, const View& x, std::int64_t b, std::int64_t h,
               std::int64_t first, std::int64_t n, const View& valid, double scale) {
  using C = Compute<T>;
  const auto by = static_cast<C>(scale);
  for (std::int64_t i = 0; i < n; ++i, to += ld) {
    const T* from = x.ptr<T>() + b * x.stride[0] + h * x.stride[1] + (first + i) * x.stride[2];
    const bool real = is_valid(valid, b, first + i);
    for (std::int64_t c = 0; c < x.dim[3]; ++c)
      to[c] = real ? by * load_one(from + c) : C(0);
    for (std::int64_t c = x.dim[3]; c < ld; ++c)
      to[c] = 0;
  }
}

// The matrices of a random map in the compute type: w [G][R][ldd] and its transpose [G][D][ldr].
template <class C>
struct Directions {
  Directions(const View& view, bool transposed)
      : groups(view.rank == 3 ? view.dim[0] : 1),
        count(view.dim[view.rank - 2]),
        width(view.dim[view.rank - 1]),
        ld(padded<C>(transposed ? count : width)),
        memory(groups * (transposed ? width : count) * ld) {
    const float* from = view.ptr<float>();
    const std::int64_t rows = transposed ? width : count, cols = transposed ? count : width;
    for (std::int64_t g = 0; g < groups; ++g) {
      for (std::int64_t r = 0; r < rows; ++r) {
        C* to = memory.data() + (g * rows + r) * ld;
        for (std::int64_t c = 0; c < ld; ++c) {
          const std::int64_t at = transposed ? c * width + r : r * width + c;
          to[c] = c < cols ? static_cast<C>(from[g * count * width + at]) : C(0);
        }
      }
    }
    per_group = rows * ld;
  }
  const C* of(const FeatureMap& map, std::int64_t h, std::int64_t heads) const {
    const std::int64_t group =
        map.entries ? std::int64_t{map.entries.ptr<std::int32_t>()[h]} : h / (heads / groups);
    return memory.data() + group * per_group;
  }
  std::int64_t groups, count, width, ld, per_group = 0;
  Scratch<C> memory;
};

// Each family's part of features_forward and features_backward.
void elementwise_forward(StreamRef stream, const View& y, const View& x, const FeatureMap& map);
void elementwise_backward(StreamRef stream, const View& dx, const View& dy, const View& x,
                          const FeatureMap& map);
void random_forward(StreamRef stream, const View& y, const View& exponent, const View& shift,
                    const View& x, const FeatureMap& map);
void random_backward(StreamRef stream, const View& dx, const View& dy, const View& x,
                     const View& shift, const FeatureMap& map);
void fourier_forward(StreamRef stream, const View& y, const View& x, const FeatureMap& map);
void fourier_backward(StreamRef stream, const View& dx, const View& dsigma, const View& dy,
                      const View& x, const FeatureMap& map);

}  // namespace fovea::cpu::FOVEA_ISA
