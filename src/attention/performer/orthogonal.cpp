#include "attention/performer/orthogonal.h"

#include <algorithm>
#include <cmath>

#include "core/random.h"
#include "core/text.h"

namespace fovea::attention {

namespace {

double length_of(const double* row, std::int64_t width) {
  double sum = 0;
  for (std::int64_t c = 0; c < width; ++c)
    sum += row[c] * row[c];
  return std::sqrt(sum);
}

// Makes `rows` orthonormal, in order: the orthogonal factor of their transpose with a positive
// diagonal, and so Haar distributed. Twice, since once leaves rounding errors behind.
void orthonormalise(double* rows, std::int64_t count, std::int64_t width) {
  for (std::int64_t r = 0; r < count; ++r) {
    double* row = rows + r * width;
    for (int pass = 0; pass < 2; ++pass) {
      for (std::int64_t other = 0; other < r; ++other) {
        const double* past = rows + other * width;
        double along = 0;
        for (std::int64_t c = 0; c < width; ++c)
          along += row[c] * past[c];
        for (std::int64_t c = 0; c < width; ++c)
          row[c] -= along * past[c];
      }
      const double length = length_of(row, width);
      for (std::int64_t c = 0; c < width; ++c)
        row[c] /= length;
    }
  }
}

}  // namespace

std::vector<double> random_directions(std::int64_t count, std::int64_t width, bool orthogonal,
                                      DirectionScale scale, std::uint64_t seed,
                                      const std::string& name) {
  const NamedStream stream(seed, name), lengths(seed, cat(name, ".length"));
  std::vector<double> out(static_cast<std::size_t>(count * width));
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = stream.normal(i);
  std::vector<double> independent(static_cast<std::size_t>(width));
  for (std::int64_t first = 0; orthogonal && first < count; first += width)
    orthonormalise(out.data() + first * width, std::min(width, count - first), width);
  for (std::int64_t r = 0; r < count; ++r) {
    if (!orthogonal && scale == DirectionScale::chi) break;  // Gaussian rows have these lengths
    double* row = out.data() + r * width;
    double length = std::sqrt(static_cast<double>(width));
    if (scale == DirectionScale::chi) {
      for (std::int64_t c = 0; c < width; ++c)
        independent[static_cast<std::size_t>(c)] =
            lengths.normal(static_cast<std::uint64_t>(r * width + c));
      length = length_of(independent.data(), width);
    }
    const double by = length / length_of(row, width);
    for (std::int64_t c = 0; c < width; ++c)
      row[c] *= by;
  }
  return out;
}

void draw_directions(Ctx& ctx, const Tensor& w, bool orthogonal, DirectionScale scale,
                     const std::string& name) {
  if (w.device().is_meta()) return;
  const std::int64_t width = w.size(-1), rows = w.size(-2), groups = w.numel() / (width * rows);
  std::vector<double> values;
  for (std::int64_t group = 0; group < groups; ++group) {
    const std::vector<double> part =
        random_directions(rows, width, orthogonal, scale, ctx.seed, cat(name, ".", group));
    values.insert(values.end(), part.begin(), part.end());
  }
  transfer(w, Tensor::from(values, w.shape(), DType::f32), ctx.stream);
}

}  // namespace fovea::attention
