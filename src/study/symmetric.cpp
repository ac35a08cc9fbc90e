#include "study/symmetric.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace fovea::study {

namespace {

// One rotation makes a[p][q] zero; rows of `vectors` turn with it.
void rotate(std::vector<double>& a, std::vector<double>& vectors, int n, int p, int q) {
  const auto at = [n](int i, int j) { return static_cast<std::size_t>(i) * n + j; };
  const double off = a[at(p, q)];
  if (off == 0) return;
  const double theta = (a[at(q, q)] - a[at(p, p)]) / (2 * off);
  const double t = (theta >= 0 ? 1.0 : -1.0) / (std::fabs(theta) + std::sqrt(theta * theta + 1));
  const double c = 1 / std::sqrt(t * t + 1), s = t * c;
  const auto turn = [&](double& x, double& y) {
    const double old = x;
    x = c * old - s * y;
    y = s * old + c * y;
  };
  for (int i = 0; i < n; ++i)
    turn(a[at(i, p)], a[at(i, q)]);
  for (int i = 0; i < n; ++i)
    turn(a[at(p, i)], a[at(q, i)]);
  for (int i = 0; i < n; ++i)
    turn(vectors[at(p, i)], vectors[at(q, i)]);
}

double off_diagonal(const std::vector<double>& a, int n) {
  double sum = 0;
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < n; ++j)
      sum += i == j
                 ? 0
                 : a[static_cast<std::size_t>(i) * n + j] * a[static_cast<std::size_t>(i) * n + j];
  }
  return sum;
}

// a^T a / N of tokens a [N,n].
std::vector<double> gram(std::span<const double> a, int n) {
  const int tokens = static_cast<int>(a.size()) / n;
  std::vector<double> out = product(transposed(a, tokens, n), a, n, tokens, n);
  for (double& x : out)
    x /= tokens;
  return out;
}

}  // namespace

Eigen symmetric_eigen(std::vector<double> a, int n) {
  constexpr int kMostSweeps = 60;
  constexpr double kDone = 1e-30;
  const auto size = static_cast<std::size_t>(n);
  std::vector<double> vectors(size * size, 0.0);
  for (std::size_t i = 0; i < size; ++i)
    vectors[i * size + i] = 1;
  double whole = 0;
  for (const double x : a)
    whole += x * x;
  for (int sweep = 0; sweep < kMostSweeps && off_diagonal(a, n) > kDone * whole; ++sweep) {
    for (int p = 0; p < n; ++p) {
      for (int q = p + 1; q < n; ++q)
        rotate(a, vectors, n, p, q);
    }
  }
  std::vector<std::size_t> order(size);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t i, std::size_t j) { return a[i * size + i] > a[j * size + j]; });
  Eigen out;
  for (const std::size_t i : order) {
    out.values.push_back(a[i * size + i]);
    out.vectors.insert(out.vectors.end(), vectors.begin() + static_cast<std::ptrdiff_t>(i * size),
                       vectors.begin() + static_cast<std::ptrdiff_t>((i + 1) * size));
  }
  return out;
}

std::vector<double> product(std::span<const double> a, std::span<const double> b, int n, int m,
                            int p) {
  const auto columns = static_cast<std::size_t>(p);
  std::vector<double> out(static_cast<std::size_t>(n) * columns, 0.0);
  for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
    for (std::size_t k = 0; k < static_cast<std::size_t>(m); ++k) {
      const double x = a[i * static_cast<std::size_t>(m) + k];
      for (std::size_t j = 0; j < columns; ++j)
        out[i * columns + j] += x * b[k * columns + j];
    }
  }
  return out;
}

std::vector<double> transposed(std::span<const double> a, int n, int m) {
  const auto rows = static_cast<std::size_t>(n), columns = static_cast<std::size_t>(m);
  std::vector<double> out(a.size());
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t j = 0; j < columns; ++j)
      out[j * rows + i] = a[i * columns + j];
  }
  return out;
}

std::vector<double> scores_spectrum(std::span<const double> a, std::span<const double> b, int n) {
  const Eigen of_a = symmetric_eigen(gram(a, n), n);
  // root = diag(sqrt(values)) vectors, of which root^T root is a's Gram matrix.
  std::vector<double> root = of_a.vectors;
  for (std::size_t i = 0; i < root.size(); ++i)
    root[i] *= std::sqrt(std::max(0.0, of_a.values[i / static_cast<std::size_t>(n)]));
  const std::vector<double> turned =
      product(product(root, gram(b, n), n, n, n), transposed(root, n, n), n, n, n);
  std::vector<double> out = symmetric_eigen(turned, n).values;
  for (double& x : out)
    x = std::sqrt(std::max(0.0, x));
  return out;
}

double effective_rank(std::span<const double> singular) {
  double sum = 0, entropy = 0;
  for (const double x : singular)
    sum += x;
  for (const double x : singular) {
    if (x > 0) entropy -= x / sum * std::log(x / sum);
  }
  return sum > 0 ? std::exp(entropy) : 0;
}

}  // namespace fovea::study
