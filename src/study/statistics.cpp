#include "study/statistics.h"

#include <cmath>
#include <vector>

#include <boost/math/distributions/students_t.hpp>

#include "core/error.h"
#include "core/text.h"

namespace fovea::study {

namespace {

constexpr double kTail = 0.025;  // on each side of a 95 % interval

double mean_of(std::span<const double> values) {
  double sum = 0;
  for (const double value : values)
    sum += value;
  const auto count = static_cast<double>(values.size());
  // What rounding left over; it is 0 where the mean is exact.
  double rest = 0;
  for (const double value : values)
    rest += value - sum / count;
  return sum / count + rest / count;
}

double deviation_of(std::span<const double> values, double mean) {
  double squares = 0;
  for (const double value : values)
    squares += (value - mean) * (value - mean);
  return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

boost::math::students_t distribution(std::size_t count) {
  return boost::math::students_t(static_cast<double>(count - 1));
}

double standard_error(double deviation, std::size_t count) {
  return deviation / std::sqrt(static_cast<double>(count));
}

}  // namespace

Summary summarise(std::span<const double> values) {
  Summary out;
  out.count = static_cast<int>(values.size());
  if (values.empty()) return out;
  out.mean = mean_of(values);
  if (values.size() < 2) return out;
  out.deviation = deviation_of(values, out.mean);
  const double quantile =
      boost::math::quantile(boost::math::complement(distribution(values.size()), kTail));
  const double half = quantile * standard_error(*out.deviation, values.size());
  out.interval = {out.mean - half, out.mean + half};
  return out;
}

PairedTest paired_t_test(std::span<const double> a, std::span<const double> b) {
  FOVEA_ASSERT(a.size() == b.size());
  std::vector<double> differences;
  for (std::size_t i = 0; i < a.size(); ++i)
    differences.push_back(a[i] - b[i]);
  const Summary summary = summarise(differences);
  PairedTest out;
  out.pairs = summary.count;
  out.difference = summary.mean;
  out.deviation = summary.deviation;
  out.interval = summary.interval;
  if (out.pairs < 2) {
    out.why_none = cat("a test needs 2 seeds in common, but there ",
                       out.pairs == 1 ? std::string("is 1") : std::string("are none"));
    return out;
  }
  if (*out.deviation == 0) {
    out.why_none = "the differences do not vary";
    return out;
  }
  out.t = out.difference / standard_error(*out.deviation, differences.size());
  out.p = 2 * boost::math::cdf(
                  boost::math::complement(distribution(differences.size()), std::fabs(*out.t)));
  return out;
}

}  // namespace fovea::study
