#include "attention/spa/health.h"

#include <algorithm>
#include <cmath>

#include "core/text.h"

namespace fovea::attention::spa {

namespace {

constexpr double kFrozenSlope = 1e-8, kMostFrozen = 0.999, kMostDeadColumns = 0.25;
constexpr double kKnownToCollapse = 1e-4;  // lambda0

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

double entropy_of(double p) {
  const auto term = [](double q) { return q > 0 ? -q * std::log(q) : 0; };
  return term(p) + term(1 - p);
}

// The mask of a test.
double fixed_mask(double g, MaskRule::Kind mode) {
  if (mode == MaskRule::Kind::magnitude) return 1;
  if (mode != MaskRule::Kind::hard_concrete) return g > 0 ? 1 : 0;
  return std::clamp(sigmoid(g) * (kStretchHigh - kStretchLow) + kStretchLow, 0.0, 1.0);
}

// Logits start so close to each other that the smallest drift decides their signs, and with them
// the deterministic mask, long before anything is learned.
bool undecided(const Health& health, const LearnChoice& learn) {
  constexpr double kChance = 0.9, kEntropy = 0.98;  // of the start
  const double start = learn.first_density();
  return learn.draws() && health.expected >= kChance * start * health.unpruned &&
         health.entropy >= kEntropy * entropy_of(start);
}

double slope_of(const LearnedState& state, std::size_t i) {
  const double u = state.u[i];
  const double z = sigmoid((std::log(u) - std::log1p(-u) + state.g[i]) / state.tau);
  return z * (1 - z) / state.tau;
}

}  // namespace

Health health_of(const LearnedState& state, const LearnChoice& learn) {
  const auto rows = static_cast<std::size_t>(state.rows),
             cols = static_cast<std::size_t>(state.cols);
  const std::size_t size = state.w.size(), matrices = size / (rows * cols);
  std::vector<bool> row_lives(matrices * rows), column_lives(matrices * cols);
  Health out;
  double active = 0, unpruned = 0, frozen = 0, squares = 0;
  for (std::size_t i = 0; i < size; ++i) {
    if (!state.u.empty() && slope_of(state, i) < kFrozenSlope) ++frozen;
    if (state.m[i] == 0) continue;
    ++unpruned;
    if (learn.draws()) {
      const double chance = sigmoid(state.g[i]);
      out.entropy += entropy_of(chance);
      out.expected += chance;
    }
    const double value = fixed_mask(state.g[i], learn.mode) * state.w[i];
    if (value == 0) continue;
    ++active;
    squares += value * value;
    const std::size_t matrix = i / (rows * cols);
    row_lives[i / cols] = true;
    column_lives[matrix * cols + i % cols] = true;
  }
  const auto dead = [](const std::vector<bool>& lives) {
    return static_cast<double>(std::count(lives.begin(), lives.end(), false)) /
           static_cast<double>(lives.size());
  };
  const auto all = static_cast<double>(size);
  out.density = active / all;
  out.unpruned = unpruned / all;
  out.expected = learn.draws() ? out.expected / all : out.density;
  out.entropy = unpruned > 0 ? out.entropy / unpruned : 0;
  out.dead_rows = dead(row_lives);
  out.dead_columns = dead(column_lives);
  out.norm = std::sqrt(squares);
  out.frozen = frozen / all;
  return out;
}

namespace {

std::string percent(double share) {
  return cat(std::round(1000 * share) / 10, " %");
}

// What has left so few entries, and the remedy.
std::string cause_of_collapse(const Health& health, const LearnChoice& learn) {
  if (!learn.draws() || health.density == health.unpruned)
    return cat("pruning leaves no more of so few; lower model.attention.rho (", learn.rho,
               ") or set model.attention.min_per_row");
  const std::string closed =
      cat("pruning leaves ", percent(health.unpruned), ", but their masks are closed: ");
  if (learn.lambda0 == 0)
    return cat(closed, "no penalty does that, but the loss itself; lower the learning rate");
  const std::string lower = cat("lower model.attention.lambda0 (", learn.lambda0, ")");
  if (learn.lambda0 > kKnownToCollapse)
    return cat(closed, "the penalty is too large; ", lower, ", known to collapse above 1e-4");
  return cat(closed,
             "the loss learns less from them than even a small penalty weighs, and the "
             "optimizer's steps do not shrink with it; ",
             lower, ", to 0 if need be, or the learning rate");
}

}  // namespace

std::string complaint(const Health& health, double target, const LearnChoice& learn) {
  const bool open = undecided(health, learn);
  if (health.density < target / 2 && !open) {
    return cat("S has collapsed: ", percent(health.density), " of its entries are left of ",
               percent(target), "; ", cause_of_collapse(health, learn));
  }
  if (health.density > 2 * target) {
    return cat("S does not get sparse: ", percent(health.density), " of its entries are left, not ",
               percent(target),
               "; let model.attention.prune_every prune, or raise "
               "model.attention.lambda0 (",
               learn.lambda0, ")");
  }
  if (health.dead_columns > kMostDeadColumns && !open) {
    return cat(percent(health.dead_columns),
               " of the columns of S are empty; lower model.attention.rho (", learn.rho, ")",
               learn.draws() && learn.lambda0 > 0
                   ? cat(" or model.attention.lambda0 (", learn.lambda0, ")")
                   : std::string(),
               ", or ask for fewer columns (model.attention.proj_dim)");
  }
  if (health.frozen > kMostFrozen) {
    return cat(percent(health.frozen), " of the masks of S are frozen: their derivative is below ",
               kFrozenSlope, "; raise model.attention.tau_min (", learn.tau_min, ") to 0.2");
  }
  return {};
}

}  // namespace fovea::attention::spa
