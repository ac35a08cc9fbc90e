#pragma once
// What repeated runs say: a mean with its spread, and whether two settings differ. Sums are made in
// two passes, so that large values with a small spread keep their digits.

#include <optional>
#include <span>
#include <string>

namespace fovea::study {

struct Interval {
  double low = 0, high = 0;
};

struct Summary {
  int count = 0;
  double mean = 0;                   // of no values: 0
  std::optional<double> deviation;   // of the sample: divided by count - 1; from two values on
  std::optional<Interval> interval;  // of the mean, 95 %, by Student's t; from two values on
};
Summary summarise(std::span<const double> values);

// Two-sided t-test of paired values: whether the mean of a[i] - b[i] is 0.
struct PairedTest {
  int pairs = 0;
  double difference = 0;             // mean of a[i] - b[i]
  std::optional<double> deviation;   // of the differences; from two pairs on
  std::optional<Interval> interval;  // of the mean difference, 95 %; from two pairs on
  std::optional<double> t, p;        // pairs - 1 degrees of freedom
  std::string why_none;              // why there is no t, in half a sentence
};
// As many values on both sides.
PairedTest paired_t_test(std::span<const double> a, std::span<const double> b);

}  // namespace fovea::study
