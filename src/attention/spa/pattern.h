#pragma once
// Fixed projections S of the feature axis. Source: spa.md 1.5.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fovea::attention::spa {

enum class PatternKind { random_iid, random_exact, block, banded, hierarchical, conv, identity };

// Sizes of S and of its pattern, by the names of spa.md.
struct PatternChoice {
  PatternKind kind = PatternKind::random_exact;
  int in = 0, out = 0;     // d_k, d'
  double s = 5;            // random: one entry in s is not zero
  bool deck = true;        // random_exact: columns are loaded equally
  int b_r = 8, b_c = 8;    // block: features by columns
  double sparsity = 0.8;   // block: aimed at
  bool bernoulli = false;  // block: each is kept with probability 1 - sparsity
  int w = 16;              // banded, conv: features of a column
  bool clip = false;       // banded: at the ends, instead of wrapping around
  bool half_band = false;  // banded: w features on either side of the middle
  int levels = 3;          // hierarchical
  bool gaussian = false;   // values normal, instead of two of one size
  bool feature_perm = false;
};

// The option to blame and what must hold, if this choice has no projection.
struct Misfit {
  std::string_view key;
  std::string reason;
};
std::optional<Misfit> misfit_of(const PatternChoice& choice);

// S, row-major [in,out]: a pure function of (choice, seed, name), drawn on the host. Rows have
// squares that sum to 1 where values have one size and the number of a row's entries is fixed (not
// random_iid, bernoulli, gaussian); else on average. Throws nothing: misfit_of(choice) is empty.
std::vector<double> draw_projection(const PatternChoice& choice, std::uint64_t seed,
                                    std::string_view name);

}  // namespace fovea::attention::spa
