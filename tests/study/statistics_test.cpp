// Against SciPy 1.17.1, whose values stand here as it prints them:
//   mean, std        numpy.mean(a), numpy.std(a, ddof=1)
//   interval         scipy.stats.t.interval(0.95, n - 1, loc=mean, scale=scipy.stats.sem(a))
//   t, p, interval   r = scipy.stats.ttest_rel(a, b); r.statistic, r.pvalue,
//                    r.confidence_interval(0.95)

#include "study/statistics.h"

#include <cmath>
#include <string>
#include <vector>

#include <doctest/doctest.h>

using namespace fovea::study;

namespace {

struct Case {
  std::string name;
  std::vector<double> a, b;
  double mean, deviation, low, high;                        // of a
  double difference, difference_deviation, t, p, from, to;  // of a against b
};

const std::vector<Case> kCases = {
    {"two values",
     {3.25, 3.5},
     {3.0, 3.75},
     3.375,
     0.1767766952966369,
     1.7867244079781632,
     4.963275592021837,
     0.0,
     0.3535533905932738,
     0.0,
     1.0,
     -3.1765511840436735,
     3.1765511840436735},
    {"three losses",
     {3.4121, 3.4087, 3.4190},
     {3.3902, 3.3961, 3.3888},
     3.413266666666667,
     0.0052481742857238564,
     3.4002294790056617,
     3.426303854327672,
     0.021566666666666734,
     0.008804733575374998,
     4.242554541461858,
     0.051318628277749065,
     -0.0003055040498366156,
     0.04343883738317009},
    {"five accuracies",
     {0.912, 0.887, 0.934, 0.901, 0.925},
     {0.951, 0.949, 0.962, 0.938, 0.957},
     0.9118,
     0.018700267377767643,
     0.8885805512402417,
     0.9350194487597584,
     -0.03959999999999993,
     0.013240090634130883,
     -6.6878916735454865,
     0.0025994689477867776,
     -0.056039743873355086,
     -0.023160256126644765},
    {"far from zero",
     {1e6 + 0.1, 1e6 + 0.4, 1e6 + 0.2, 1e6 + 0.9},
     {1e6 + 0.3, 1e6 + 0.2, 1e6 + 0.6, 1e6 + 0.1},
     1000000.4,
     0.3559026084272116,
     999999.8336795294,
     1000000.9663204707,
     0.10000000000582077,
     0.5291502622583857,
     0.3779644729987508,
     0.7306151529184173,
     -0.7419961485262315,
     0.9419961485378731},
    {"twelve seeds",
     {2.31, 2.29, 2.35, 2.33, 2.30, 2.28, 2.36, 2.27, 2.32, 2.34, 2.30, 2.31},
     {2.41, 2.45, 2.38, 2.47, 2.40, 2.43, 2.44, 2.39, 2.46, 2.42, 2.37, 2.48},
     2.3133333333333335,
     0.02774341308665843,
     2.2957060096349786,
     2.3309606570316883,
     -0.11166666666666676,
     0.04217567875906542,
     -9.171747598108396,
     1.7415426269480455e-06,
     -0.13846381449277165,
     -0.08486951884056188},
    {"small values",
     {1e-9, 3e-9, 2e-9},
     {2e-9, 2.5e-9, 4e-9},
     2e-09,
     9.999999999999999e-10,
     -4.841377117503294e-10,
     4.48413771175033e-09,
     -8.333333333333334e-10,
     1.2583057392117916e-09,
     -1.1470786693528088,
     0.37005921165128797,
     -3.959138073021221e-09,
     2.292471406354554e-09},
};

// Relative: small values are not let off.
bool near(double found, double expected) {
  return std::fabs(found - expected) <= 1e-10 * std::fabs(expected);
}

}  // namespace

TEST_CASE("mean, sample deviation and 95 % interval are SciPy's to 1e-10") {
  for (const Case& c : kCases) {
    CAPTURE(c.name);
    const Summary found = summarise(c.a);
    CHECK(found.count == static_cast<int>(c.a.size()));
    CHECK(near(found.mean, c.mean));
    REQUIRE(found.deviation.has_value());
    CHECK(near(*found.deviation, c.deviation));
    CHECK(near(found.interval->low, c.low));
    CHECK(near(found.interval->high, c.high));
  }
}

TEST_CASE("the paired t-test is SciPy's to 1e-10") {
  for (const Case& c : kCases) {
    CAPTURE(c.name);
    const PairedTest found = paired_t_test(c.a, c.b);
    CHECK(found.pairs == static_cast<int>(c.a.size()));
    CHECK(near(found.difference, c.difference));
    CHECK(near(found.deviation.value(), c.difference_deviation));
    REQUIRE(found.t.has_value());
    CHECK(near(*found.t, c.t));
    CHECK(near(*found.p, c.p));
    CHECK(near(found.interval->low, c.from));
    CHECK(near(found.interval->high, c.to));
    CHECK(found.why_none.empty());
  }
}

TEST_CASE("exchanging the sides turns the sign of t and keeps p") {
  const Case& c = kCases[1];
  const PairedTest one = paired_t_test(c.a, c.b), other = paired_t_test(c.b, c.a);
  CHECK(*one.t == -*other.t);
  CHECK(*one.p == *other.p);
}

TEST_CASE("one value has a mean and no spread") {
  const Summary found = summarise(std::vector<double>{2.5});
  CHECK(found.count == 1);
  CHECK(found.mean == 2.5);
  CHECK_FALSE(found.deviation.has_value());
  CHECK_FALSE(found.interval.has_value());
  CHECK(summarise({}).count == 0);
}

TEST_CASE("where no test can be made, it says why") {
  const PairedTest none = paired_t_test({}, {});
  CHECK(none.why_none == "a test needs 2 seeds in common, but there are none");
  const PairedTest one = paired_t_test(std::vector<double>{2.0}, std::vector<double>{1.5});
  CHECK(one.difference == 0.5);
  CHECK_FALSE(one.t.has_value());
  CHECK(one.why_none == "a test needs 2 seeds in common, but there is 1");
  // SciPy has NaN here, and an infinite t for differences that are all the same.
  const std::vector<double> same = {1.0, 2.0}, more = {2.0, 3.0};
  CHECK(paired_t_test(same, same).why_none == "the differences do not vary");
  CHECK_FALSE(paired_t_test(more, same).p.has_value());
  CHECK(paired_t_test(more, same).interval->low == 1.0);
}

TEST_CASE("a mean is exact where the values allow it") {
  // 0.1 added ten times is not 1.
  CHECK(summarise(std::vector<double>(10, 0.1)).mean == 0.1);
  CHECK(*summarise(std::vector<double>(10, 0.1)).deviation == 0);
}
