#include "study/probe_head.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/parallel.h"
#include "study/symmetric.h"

namespace fovea::study {

namespace {

constexpr double kDelta = 0.05;  // of the printed bounds, that hold with probability 1 - delta
constexpr std::int64_t kRowsAtOnce = 64;

double dot(const double* a, const double* b, int n) {
  double sum = 0;
  for (int c = 0; c < n; ++c)
    sum += a[c] * b[c];
  return sum;
}

std::vector<double> norms_of(std::span<const double> x, int width) {
  std::vector<double> out;
  for (std::size_t i = 0; i < x.size(); i += static_cast<std::size_t>(width))
    out.push_back(std::sqrt(dot(x.data() + i, x.data() + i, width)));
  return out;
}

Range range_of(const std::vector<double>& x) {
  Range out{x.front(), 0, x.front()};
  for (const double one : x) {
    out.least = std::min(out.least, one);
    out.most = std::max(out.most, one);
    out.mean += one / static_cast<double>(x.size());
  }
  return out;
}

double root_of_squares(std::span<const double> x) {
  double sum = 0;
  for (const double one : x)
    sum += one * one;
  return std::sqrt(sum);
}

// Sums over rows of scores, in the order of the rows.
struct Sums {
  double seen = 0, error_sq = 0, error = 0, error_most = 0, both = 0, dense_sq = 0;
  double all = 0, all_error_sq = 0;
  double eps = 0, e0 = 0, delta = 0;
  double attention_sq = 0, variation = 0, entropy = 0, entropy_spa = 0;
  double out_sq = 0, out_error_sq = 0;

  void add(const Sums& o) {
    for (double Sums::*sum :
         {&Sums::seen, &Sums::error_sq, &Sums::error, &Sums::both, &Sums::dense_sq, &Sums::all,
          &Sums::all_error_sq, &Sums::attention_sq, &Sums::variation, &Sums::entropy,
          &Sums::entropy_spa, &Sums::out_sq, &Sums::out_error_sq}) {
      this->*sum += o.*sum;
    }
    for (double Sums::*most : {&Sums::error_most, &Sums::eps, &Sums::e0, &Sums::delta})
      this->*most = std::max(this->*most, o.*most);
  }
};

// Probabilities in place of scores; returns their entropy.
double softmax(std::vector<double>& scores) {
  double most = -std::numeric_limits<double>::infinity(), sum = 0, entropy = 0;
  for (const double score : scores)
    most = std::max(most, score);
  for (double& score : scores)
    sum += score = std::exp(score - most);
  for (double& score : scores) {
    score /= sum;
    if (score > 0) entropy -= score * std::log(score);
  }
  return entropy;
}

class Rows {
 public:
  Rows(const HeadTokens& head, const std::vector<double>& q_norms,
       const std::vector<double>& k_norms)
      : h_(head),
        q_norms_(q_norms),
        k_norms_(k_norms),
        narrow_q_(
            product(head.q, head.s_q, static_cast<int>(head.queries), head.width, head.projected)),
        narrow_k_(
            product(head.k, head.s_k, static_cast<int>(head.keys), head.width, head.projected)) {}

  void add(std::int64_t i, Sums& to) const {
    const std::int64_t seen = h_.causal ? std::min(h_.keys, i + 1 + h_.keys - h_.queries) : h_.keys;
    std::vector<double> dense, spa;
    const double q_norm = q_norms_[static_cast<std::size_t>(i)];
    for (std::int64_t j = 0; j < h_.keys; ++j) {
      const double x = dot(h_.q.data() + i * h_.width, h_.k.data() + j * h_.width, h_.width),
                   y = dot(narrow_q_.data() + i * h_.projected, narrow_k_.data() + j * h_.projected,
                           h_.projected);
      const double k_norm = k_norms_[static_cast<std::size_t>(j)], norms = q_norm * k_norm;
      const double error = h_.scale * y - h_.dense_scale * x;
      const double apart = norms > 0 ? std::fabs(x - y) / norms : 0;
      to.all += 1;
      to.all_error_sq += error * error;
      to.delta = std::max(to.delta, apart);
      if (j >= seen) continue;
      const double squares = q_norm * q_norm + k_norm * k_norm;
      to.e0 = std::max(to.e0, apart);
      if (squares > 0) to.eps = std::max(to.eps, 2 * std::fabs(error) / squares);
      to.error_most = std::max(to.error_most, std::fabs(error));
      to.error_sq += error * error;
      to.error += error;
      to.seen += 1;
      dense.push_back(h_.dense_scale * x);
      spa.push_back(h_.scale * y);
      to.both += dense.back() * spa.back();
      to.dense_sq += dense.back() * dense.back();
    }
    to.entropy += softmax(dense);
    to.entropy_spa += softmax(spa);
    add_outputs(dense, spa, to);
  }

 private:
  void add_outputs(const std::vector<double>& p, const std::vector<double>& of_s, Sums& to) const {
    const auto width = static_cast<std::size_t>(h_.v_dim);
    std::vector<double> o(width, 0.0), apart(width, 0.0);
    for (std::size_t j = 0; j < p.size(); ++j) {
      const double d = of_s[j] - p[j];
      to.attention_sq += d * d;
      to.variation += std::fabs(d) / 2;
      for (std::size_t c = 0; c < width; ++c) {
        o[c] += p[j] * h_.v[j * width + c];
        apart[c] += d * h_.v[j * width + c];
      }
    }
    for (std::size_t c = 0; c < width; ++c) {
      to.out_sq += o[c] * o[c];
      to.out_error_sq += apart[c] * apart[c];
    }
  }

  const HeadTokens& h_;
  const std::vector<double>&q_norms_, &k_norms_;
  std::vector<double> narrow_q_, narrow_k_;
};

Sums sums_of(const HeadTokens& head, const Rows& rows, StreamRef stream) {
  std::vector<Sums> parts(static_cast<std::size_t>((head.queries + kRowsAtOnce - 1) / kRowsAtOnce));
  parallel_for(stream, head.queries, kRowsAtOnce, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      rows.add(i, parts[static_cast<std::size_t>(begin / kRowsAtOnce)]);
  });
  Sums out;
  for (const Sums& part : parts)
    out.add(part);
  return out;
}

// S_q S_k^T, [width,width].
std::vector<double> form_of(const HeadTokens& head) {
  return product(head.s_q, transposed(head.s_k, head.width, head.projected), head.width,
                 head.projected, head.width);
}

// sqrt of the mean over all pairs of (q^T E k)^2, by the Gram matrices.
double closed_rms(const HeadTokens& head) {
  const int n = head.width;
  std::vector<double> error = form_of(head);
  for (std::size_t i = 0; i < error.size(); ++i) {
    const bool diagonal = i % static_cast<std::size_t>(n + 1) == 0;
    error[i] = head.scale * error[i] - (diagonal ? head.dense_scale : 0);
  }
  const auto gram = [n](std::span<const double> x, std::int64_t tokens) {
    const int count = static_cast<int>(tokens);
    return product(transposed(x, count, n), x, n, count, n);
  };
  const std::vector<double> right =
      product(product(error, gram(head.k, head.keys), n, n, n), transposed(error, n, n), n, n, n);
  const std::vector<double> left = gram(head.q, head.queries);
  double trace = 0;
  for (std::size_t i = 0; i < left.size(); ++i)
    trace += left[i] * right[i];  // both are symmetric
  const double pairs = static_cast<double>(head.queries) * static_cast<double>(head.keys);
  return std::sqrt(std::max(0.0, trace / pairs));
}

void add_spectrum(HeadProbe& to, const HeadTokens& head) {
  const std::vector<double> spectrum = scores_spectrum(head.q, head.k, head.width);
  to.scores_effective_rank = effective_rank(spectrum);
  double left = 0;
  for (std::size_t i = static_cast<std::size_t>(head.projected); i < spectrum.size(); ++i)
    left += spectrum[i] * spectrum[i];
  to.oracle_rms = head.dense_scale * std::sqrt(left);
}

// The corrected bound, the trivial one, and what C would have to be in the printed one.
void add_bounds(HeadProbe& to, const HeadTokens& head) {
  const double norms = to.q_frobenius * to.k_frobenius;
  to.bound_corrected =
      0.5 * norms *
      (head.dense_scale * to.e0_hat + std::fabs(head.scale - head.dense_scale) * (1 + to.e0_hat));
  to.bound_trivial = std::sqrt(2 * static_cast<double>(head.queries));
  const double n = static_cast<double>(std::max(head.queries, head.keys));
  const double printed = norms * std::sqrt(std::log(n / kDelta) / head.projected) *
                         (1 / std::sqrt(static_cast<double>(head.width)) +
                          1 / std::sqrt(static_cast<double>(head.projected)));
  to.c_implied = printed > 0 ? to.attn_frobenius / printed : 0;
}

// The largest |eigenvalue| of [[a,b],[b,d]].
double norm_of_pair(double a, double b, double d) {
  const double middle = (a + d) / 2, reach = std::hypot((a - d) / 2, b);
  return std::max(std::fabs(middle + reach), std::fabs(middle - reach));
}

}  // namespace

MatrixProbe probe_matrix(const HeadTokens& head) {
  constexpr double kNoRank = 1e-7;  // of the largest singular value, which is a root
  const auto rows = static_cast<std::size_t>(head.width),
             columns = static_cast<std::size_t>(head.projected);
  MatrixProbe out;
  std::vector<double> by_column(columns, 0.0), energies;
  for (std::size_t i = 0; i < rows; ++i) {
    double energy = 0;
    for (std::size_t j = 0; j < columns; ++j) {
      const double x = head.s_k[i * columns + j];
      out.entries += x != 0 ? 1 : 0;
      energy += x * x;
      by_column[j] += x * x;
    }
    energies.push_back(energy);
  }
  out.empty_rows = static_cast<int>(std::count(energies.begin(), energies.end(), 0.0));
  out.empty_columns = static_cast<int>(std::count(by_column.begin(), by_column.end(), 0.0));
  out.row_energy_least = range_of(energies).least;
  out.row_energy_most = range_of(energies).most;

  const int n = head.width, m = head.projected;
  const std::vector<double> turned = transposed(head.s_k, n, m);
  out.singular = m < n ? symmetric_eigen(product(turned, head.s_k, m, n, m), m).values
                       : symmetric_eigen(product(head.s_k, turned, n, m, n), n).values;
  for (double& x : out.singular)
    x = std::sqrt(std::max(0.0, x));
  out.rank =
      static_cast<int>(std::count_if(out.singular.begin(), out.singular.end(),
                                     [&](double x) { return x > kNoRank * out.singular.front(); }));
  out.effective_rank = effective_rank(out.singular);

  std::vector<double> apart = form_of(head);
  for (std::size_t i = 0; i < rows; ++i)
    apart[i * rows + i] -= 1;
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t j = i + 1; j < rows; ++j)
      out.delta2 = std::max(
          out.delta2, norm_of_pair(apart[i * rows + i], apart[i * rows + j], apart[j * rows + j]));
  }
  const std::vector<double> values = symmetric_eigen(apart, n).values;
  out.delta_full = std::max(std::fabs(values.front()), std::fabs(values.back()));
  return out;
}

HeadProbe probe_head(const HeadTokens& head, StreamRef stream) {
  const std::vector<double> q_norms = norms_of(head.q, head.width),
                            k_norms = norms_of(head.k, head.width);
  const Rows rows(head, q_norms, k_norms);
  const Sums sums = sums_of(head, rows, stream);
  const double queries = static_cast<double>(head.queries);
  HeadProbe out;
  out.q_norms = range_of(q_norms);
  out.k_norms = range_of(k_norms);
  out.q_frobenius = root_of_squares(head.q);
  out.k_frobenius = root_of_squares(head.k);
  out.score_err_rms = std::sqrt(sums.error_sq / sums.seen);
  out.score_err_max = sums.error_most;
  out.score_bias = sums.error / sums.seen;
  out.logit_gain = sums.dense_sq > 0 ? sums.both / sums.dense_sq : 0;
  out.expected_gain = head.scale / head.dense_scale;
  out.all_pairs_rms = std::sqrt(sums.all_error_sq / sums.all);
  out.closed_rms = closed_rms(head);
  out.eps_hat = sums.eps;
  out.e0_hat = sums.e0;
  out.delta_data = sums.delta;
  out.attn_frobenius = std::sqrt(sums.attention_sq);
  out.attn_tv = sums.variation / queries;
  out.logit_frobenius = std::sqrt(sums.error_sq);
  out.out_err = sums.out_sq > 0 ? std::sqrt(sums.out_error_sq / sums.out_sq) : 0;
  out.entropy_dense = sums.entropy / queries;
  out.entropy_spa = sums.entropy_spa / queries;
  add_spectrum(out, head);
  add_bounds(out, head);
  out.s = probe_matrix(head);
  return out;
}

bool HeadProbe::closed_form_agrees() const {
  // An S that changes nothing leaves roundings against zero.
  const double room = 1e-4 * all_pairs_rms + 1e-12 * q_frobenius * k_frobenius;
  return std::fabs(all_pairs_rms - closed_rms) <= room;
}

bool HeadProbe::bounds_hold() const {
  constexpr double kRounding = 1 + 1e-9;
  return attn_frobenius <= bound_trivial * kRounding &&
         attn_frobenius <= bound_corrected * kRounding + 1e-12;
}

std::int64_t jl_dimension(std::int64_t n, double epsilon) {
  constexpr double kBeta = 1;
  const double points = 2 * static_cast<double>(n) * static_cast<double>(n);
  return static_cast<std::int64_t>(
      std::ceil((4 + 2 * kBeta) * std::log(points) /
                (epsilon * epsilon / 2 - epsilon * epsilon * epsilon / 3)));
}

}  // namespace fovea::study
