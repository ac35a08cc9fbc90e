// The statistics that spa.md 1.5 promises of fixed projections.

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>

#include <doctest/doctest.h>

#include "attention/spa/deck.h"
#include "attention/spa/pattern.h"
#include "core/random.h"
#include "core/text.h"

using namespace fovea;
using namespace fovea::attention::spa;

namespace {

using Kind = PatternKind;
using Matrix = std::vector<double>;

PatternChoice of(Kind kind, int in = 64, int out = 32) {
  PatternChoice choice;
  choice.kind = kind;
  choice.in = in;
  choice.out = out;
  return choice;
}

PatternChoice iid(double s, int out = 32) {
  PatternChoice choice = of(Kind::random_iid, 64, out);
  choice.s = s;
  return choice;
}

PatternChoice tall_blocks(int out = 32) {
  PatternChoice choice = of(Kind::block, 64, out);
  choice.b_r = 16;
  choice.b_c = 4;
  return choice;
}

// Every pattern whose rows have squares that sum to 1.
std::vector<PatternChoice> exact_patterns(int out = 32) {
  std::vector<PatternChoice> all = {
      of(Kind::random_exact, 64, out), of(Kind::block, 64, out),        tall_blocks(out),
      of(Kind::banded, 64, out),       of(Kind::hierarchical, 64, out), of(Kind::conv, 64, out)};
  for (const double s : {10, 20}) {
    all.push_back(of(Kind::random_exact, 64, out));
    all.back().s = s;
  }
  all.push_back(of(Kind::random_exact, 64, out));
  all.back().deck = false;
  all.push_back(of(Kind::banded, 64, out));
  all.back().clip = true;
  all.push_back(of(Kind::banded, 64, out));
  all.back().half_band = true;
  all.push_back(of(Kind::hierarchical, 64, out));
  all.back().levels = 2;
  all.push_back(of(Kind::block, 64, out));
  all.back().feature_perm = true;
  return all;
}

Matrix drawn(const PatternChoice& choice, int seed) {
  return draw_projection(choice, static_cast<std::uint64_t>(seed), "layer.0.S");
}

double entries(const Matrix& s) {
  return static_cast<double>(std::count_if(s.begin(), s.end(), [](double x) { return x != 0; }));
}

double sparsity(const PatternChoice& choice) {
  return 1 - entries(drawn(choice, 1)) / (choice.in * choice.out);
}

double row_energy(const PatternChoice& choice, const Matrix& s, int row) {
  double sum = 0;
  for (int j = 0; j < choice.out; ++j) {
    const double x = s[static_cast<std::size_t>(row * choice.out + j)];
    sum += x * x;
  }
  return sum;
}

double column_entries(const PatternChoice& choice, const Matrix& s, int column) {
  double count = 0;
  for (int i = 0; i < choice.in; ++i)
    count += s[static_cast<std::size_t>(i * choice.out + column)] != 0 ? 1 : 0;
  return count;
}

// <q S, k S>
double estimate(const PatternChoice& choice, const Matrix& s, const Matrix& q, const Matrix& k) {
  double sum = 0;
  for (int j = 0; j < choice.out; ++j) {
    double qs = 0, ks = 0;
    for (int i = 0; i < choice.in; ++i) {
      const double x = s[static_cast<std::size_t>(i * choice.out + j)];
      qs += q[static_cast<std::size_t>(i)] * x;
      ks += k[static_cast<std::size_t>(i)] * x;
    }
    sum += qs * ks;
  }
  return sum;
}

double dot(const Matrix& a, const Matrix& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    sum += a[i] * b[i];
  return sum;
}

// The variance of the estimate over the signs, for the magnitudes of `s`; spa.md 1.5.
double variance_formula(const PatternChoice& choice, const Matrix& s, const Matrix& q,
                        const Matrix& k) {
  double total = 0;
  for (int j = 0; j < choice.out; ++j) {
    double qq = 0, kk = 0, qk = 0, fourth = 0;
    for (int i = 0; i < choice.in; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const double a2 = std::pow(s[static_cast<std::size_t>(i * choice.out + j)], 2);
      qq += a2 * q[at] * q[at];
      kk += a2 * k[at] * k[at];
      qk += a2 * q[at] * k[at];
      fourth += a2 * a2 * q[at] * q[at] * k[at] * k[at];
    }
    total += qq * kk + qk * qk - 2 * fourth;
  }
  return total;
}

Matrix vector_of(const char* name) {
  const NamedStream stream(5, name);
  Matrix out(64);
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = stream.normal(i);
  return out;
}

std::string why_not(const PatternChoice& choice) {
  const auto misfit = misfit_of(choice);
  return misfit ? cat(misfit->key, ": ", misfit->reason) : "";
}

}  // namespace

TEST_CASE("rows of the exact patterns have squares that sum to 1, for every width and seed") {
  for (const int out : {16, 32, 48, 64, 96, 128}) {
    for (const PatternChoice& choice : exact_patterns(out)) {
      if (misfit_of(choice)) continue;  // conv at 48 and 96
      CAPTURE(static_cast<int>(choice.kind));
      CAPTURE(out);
      for (int seed = 0; seed < 20; ++seed) {
        const Matrix s = drawn(choice, seed);
        double worst = 0;
        for (int i = 0; i < choice.in; ++i)
          worst = std::max(worst, std::fabs(row_energy(choice, s, i) - 1));
        CHECK(worst < 1e-13);
      }
    }
  }
}

TEST_CASE("no column of an exact pattern is empty where its entries suffice") {
  for (const int out : {16, 32, 64, 128}) {
    for (const PatternChoice& choice : exact_patterns(out)) {
      if (misfit_of(choice) || !choice.deck) continue;
      CAPTURE(static_cast<int>(choice.kind));
      const Matrix s = drawn(choice, 3);
      if (entries(s) < out) continue;
      for (int j = 0; j < out; ++j)
        CHECK(column_entries(choice, s, j) > 0);
    }
  }
}

TEST_CASE("a dealt pattern loads its columns equally, to one entry or block") {
  for (const double s : {5, 7, 10, 20}) {
    PatternChoice choice = of(Kind::random_exact, 64, 48);
    choice.s = s;
    for (int seed = 0; seed < 20; ++seed) {
      const Matrix drawn_s = drawn(choice, seed);
      double least = 1e9, most = 0;
      for (int j = 0; j < choice.out; ++j) {
        least = std::min(least, column_entries(choice, drawn_s, j));
        most = std::max(most, column_entries(choice, drawn_s, j));
      }
      CHECK(most - least <= 1);
      for (int i = 0; i < choice.in; ++i) {
        const auto row = drawn_s.begin() + i * choice.out;
        CHECK(std::count_if(row, row + choice.out, [](double x) { return x != 0; }) ==
              std::max(1, static_cast<int>(std::floor(48 / s + 0.5))));
      }
    }
  }
  for (int seed = 0; seed < 20; ++seed) {
    const PatternChoice choice = tall_blocks(96);
    const Matrix s = drawn(choice, seed);
    double least = 1e9, most = 0;
    for (int j = 0; j < choice.out; j += choice.b_c) {
      least = std::min(least, column_entries(choice, s, j) / choice.b_r);
      most = std::max(most, column_entries(choice, s, j) / choice.b_r);
    }
    CHECK(most - least <= 1);
  }
}

TEST_CASE("a card that would come twice in a hand stays for a later one") {
  Deck deck(5, 7, "cards");
  std::vector<int> seen(5);
  for (int hand = 1; hand <= 200; ++hand) {
    const std::vector<int> cards = deck.deal(1 + hand % 5);
    for (const int card : cards) {
      CHECK(std::count(cards.begin(), cards.end(), card) == 1);
      ++seen[static_cast<std::size_t>(card)];
    }
    CHECK(*std::max_element(seen.begin(), seen.end()) -
              *std::min_element(seen.begin(), seen.end()) <=
          1);
  }
}

TEST_CASE("blocks have the sparsity of the table, whatever the width") {
  const int widths[] = {16, 32, 48, 64, 96, 128};
  const double square[] = {0.5, 0.75, 1 - 1.0 / 6, 0.75, 1 - 1.0 / 6, 1 - 3.0 / 16};
  for (std::size_t i = 0; i < 6; ++i) {
    CHECK(sparsity(of(Kind::block, 64, widths[i])) == doctest::Approx(square[i]));
    CHECK(sparsity(tall_blocks(widths[i])) == doctest::Approx(0.75));
  }
}

TEST_CASE("bands, levels and convolutions have the sparsity of their definitions") {
  CHECK(sparsity(of(Kind::banded, 64, 32)) == doctest::Approx(0.75));
  CHECK(sparsity(of(Kind::banded, 512, 64)) == doctest::Approx(1 - 2.0 / 64));
  for (const int out : {16, 32, 48, 64, 96, 128})
    CHECK(sparsity(of(Kind::hierarchical, 64, out)) == doctest::Approx(0.75));
  CHECK(sparsity(of(Kind::conv, 64, 32)) == doctest::Approx(0.75));  // 8 of 32 in every row
}

TEST_CASE("random_iid has 80, 90 and 95 % zeros, and as many empty rows as expected") {
  const double expected[2][3] = {{0.05, 2.2, 12.4}, {0, 0.08, 2.4}};
  for (int wide = 0; wide < 2; ++wide) {
    int column = 0;
    for (const double s : {5, 10, 20}) {
      const PatternChoice choice = iid(s, wide == 0 ? 32 : 64);
      double empty = 0, kept = 0;
      const int seeds = 400;
      for (int seed = 0; seed < seeds; ++seed) {
        const Matrix drawn_s = drawn(choice, seed);
        kept += entries(drawn_s);
        for (int i = 0; i < choice.in; ++i)
          empty += row_energy(choice, drawn_s, i) == 0 ? 1 : 0;
      }
      CAPTURE(s);
      CHECK(kept / seeds / (choice.in * choice.out) == doctest::Approx(1 / s).epsilon(0.02));
      const double p = 64 * std::pow(1 - 1 / s, choice.out);
      CHECK(p == doctest::Approx(expected[wide][column++]).epsilon(0.01).scale(1));
      CHECK(std::fabs(empty / seeds - p) < 5 * std::sqrt((p + 1e-3) / seeds));
    }
  }
}

TEST_CASE("the mean of S S^T over 1000 seeds is the identity, within five standard errors") {
  std::vector<PatternChoice> all = exact_patterns();
  all.push_back(iid(5));
  all.push_back(iid(20));
  all.push_back(of(Kind::block));
  all.back().bernoulli = true;
  all.push_back(of(Kind::random_exact));
  all.back().gaussian = true;
  for (PatternChoice choice : all) {
    choice.in = 16;  // the same entries, fewer pairs
    if (choice.kind == Kind::conv) choice.out = 16;
    if (misfit_of(choice)) continue;
    CAPTURE(static_cast<int>(choice.kind));
    const std::size_t n = 16, width = static_cast<std::size_t>(choice.out);
    const int seeds = 1000;
    Matrix mean(n * n), square(n * n);
    for (int seed = 0; seed < seeds; ++seed) {
      const Matrix s = drawn(choice, seed);
      for (std::size_t a = 0; a < n; ++a) {
        for (std::size_t b = 0; b < n; ++b) {
          double sum = 0;
          for (std::size_t j = 0; j < width; ++j)
            sum += s[a * width + j] * s[b * width + j];
          mean[a * n + b] += sum / seeds;
          square[a * n + b] += sum * sum / seeds;
        }
      }
    }
    int outside = 0;
    for (std::size_t a = 0; a < n; ++a) {
      for (std::size_t b = 0; b < n; ++b) {
        const double m = mean[a * n + b];
        const double error = std::sqrt(std::max(square[a * n + b] - m * m, 0.0) / seeds);
        outside += std::fabs(m - (a == b ? 1 : 0)) > 5 * error + 1e-12 ? 1 : 0;
      }
    }
    CHECK(outside == 0);
  }
}

TEST_CASE("the variance of the estimate is the formula's within 10 %, over 2000 seeds") {
  const Matrix q = vector_of("q"), k = vector_of("k");
  std::vector<PatternChoice> all = {of(Kind::random_exact), of(Kind::block), tall_blocks(),
                                    of(Kind::banded), of(Kind::hierarchical)};
  for (const PatternChoice& choice : all) {
    CAPTURE(static_cast<int>(choice.kind));
    double mean = 0, square = 0, formula = 0;
    const int seeds = 2000;
    for (int seed = 0; seed < seeds; ++seed) {
      const Matrix s = drawn(choice, seed);
      const double x = estimate(choice, s, q, k);
      mean += x / seeds;
      square += x * x / seeds;
      formula += variance_formula(choice, s, q, k) / seeds;
    }
    CHECK(square - mean * mean == doctest::Approx(formula).epsilon(0.1));
    CHECK(std::fabs(mean - dot(q, k)) < 5 * std::sqrt(formula / seeds));
  }
}

TEST_CASE("random_iid has its own variance, and the relative deviations of the specification") {
  Matrix q(64), k(64);
  for (std::size_t i = 0; i < 64; ++i) {
    q[i] = 1;
    k[i] = i < 32 ? 1 : -1;
  }
  const double expected[] = {0.174, 0.180, 0.186, 0.199};
  int at = 0;
  for (const double s : {1, 5, 10, 20}) {
    CAPTURE(s);
    const double formula = (64 * 64 + (s - 3) * 64) / 32;
    CHECK(std::sqrt(formula) / 64 == doctest::Approx(expected[at++]).epsilon(0.004));
    double mean = 0, square = 0;
    const int seeds = 2000;
    for (int seed = 0; seed < seeds; ++seed) {
      const double x = estimate(iid(s), drawn(iid(s), seed), q, k);
      mean += x / seeds;
      square += x * x / seeds;
    }
    CHECK(square - mean * mean == doctest::Approx(formula).epsilon(0.1));
  }
}

TEST_CASE("S is a function of choice, seed and name, and nothing else") {
  for (const PatternChoice& choice : exact_patterns()) {
    CHECK(drawn(choice, 4) == drawn(choice, 4));
    CHECK(drawn(choice, 4) != drawn(choice, 5));
    CHECK(draw_projection(choice, 4, "layer.0.S.head.1") != drawn(choice, 4));
  }
  PatternChoice turned = of(Kind::banded), plain = of(Kind::banded);
  turned.feature_perm = true;
  CHECK(drawn(turned, 4) != drawn(plain, 4));
}

TEST_CASE("a convolution's columns are one filter, moved") {
  const PatternChoice choice = of(Kind::conv);  // two filters, steps of 4
  const Matrix s = drawn(choice, 9);
  for (int p = 1; p < 16; ++p) {
    for (int i = 0; i < 64; ++i) {
      const auto at = [&](int row, int column) {
        return s[static_cast<std::size_t>((row % 64) * 32 + column)];
      };
      CHECK(at(i + 4 * p, p) == at(i, 0));
      CHECK(at(i + 4 * p, 16 + p) == at(i, 16));
    }
  }
}

TEST_CASE("sizes without a projection are refused with the option to blame") {
  CHECK(why_not(of(Kind::banded, 512, 16)).find("w: must make bands of at least 32") == 0);
  PatternChoice wide = of(Kind::banded, 8, 4);
  CHECK(why_not(wide).find("at most the 8") != std::string::npos);
  CHECK(why_not(of(Kind::block, 64, 20)).find("b_c") == 0);
  CHECK(why_not(of(Kind::block, 60, 32)).find("b_r") == 0);
  CHECK(why_not(of(Kind::hierarchical, 64, 24)).find("proj_dim") == 0);
  CHECK(why_not(of(Kind::hierarchical, 12, 16)).find("levels") == 0);
  CHECK(why_not(of(Kind::conv, 64, 24)).find("proj_dim") == 0);
  CHECK(why_not(of(Kind::conv, 8, 8)).find("w: ") == 0);
  CHECK(why_not(of(Kind::identity, 8, 4)).find("proj_dim") == 0);
  PatternChoice clipped = of(Kind::banded, 64, 4);
  clipped.clip = true;
  CHECK(why_not(clipped).find("clip") == 0);
  for (const PatternChoice& choice : exact_patterns())
    CHECK(why_not(choice).empty());
}
