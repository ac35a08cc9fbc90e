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
// the mask of a test, long before anything is learned.
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

std::string lower_lambda0(const LearnChoice& learn) {
  return cat("lower model.attention.lambda0 (", learn.lambda0, ")");
}

// Why the mask of a test may be near empty though those of training are not, and the remedy.
std::string cause_of_few(const Health& health, const LearnChoice& learn) {
  const std::string state = cat("the masks are undecided: the chance of each is still about ",
                                percent(health.expected / health.unpruned),
                                ", that of the start, but evaluation uses S with the ",
                                percent(health.density), " that are above 50 %; ");
  if (learn.lambda0 > kKnownToCollapse)
    return cat(state, lower_lambda0(learn), ", known to collapse above 1e-4");
  return cat(state,
             "raise the learning rate of the masks' logits (optim.lr_scale), set "
             "model.attention.learn_mode: magnitude",
             learn.lambda0 > 0 ? cat(", or ", lower_lambda0(learn)) : std::string());
}

// What has left so few entries, and the remedy.
std::string cause_of_collapse(const Health& health, const LearnChoice& learn) {
  if (!learn.draws() || health.density == health.unpruned)
    return cat("pruning leaves no more of so few; lower model.attention.rho (", learn.rho,
               ") or set model.attention.min_per_row");
  const std::string left = cat("pruning leaves ", percent(health.unpruned), ", but ");
  if (undecided(health, learn)) return cat(left, cause_of_few(health, learn));
  const std::string closed = cat(left, "their masks are closed: ");
  if (learn.lambda0 == 0)
    return cat(closed, "no penalty does that, but the loss itself; lower the learning rate");
  if (learn.lambda0 > kKnownToCollapse)
    return cat(closed, "the penalty is too large; ", lower_lambda0(learn),
               ", known to collapse above 1e-4");
  return cat(closed,
             "the loss learns less from them than even a small penalty weighs, and the "
             "optimizer's steps do not shrink with it; ",
             lower_lambda0(learn), ", to 0 if need be, or the learning rate");
}

std::string cause_of_dead_columns(const Health& health, const LearnChoice& learn) {
  if (health.density < health.unpruned && undecided(health, learn))
    return cause_of_few(health, learn);
  return cat("lower model.attention.rho (", learn.rho, ")",
             learn.draws() && learn.lambda0 > 0
                 ? cat(" or model.attention.lambda0 (", learn.lambda0, ")")
                 : std::string(),
             ", or ask for fewer columns (model.attention.proj_dim)");
}

std::string remedy_of_density(const LearnChoice& learn) {
  return cat(learn.prune_every > 0
                 ? cat("lower model.attention.prune_every (", learn.prune_every, ")")
                 : std::string("let model.attention.prune_every prune"),
             learn.draws() ? cat(", or raise model.attention.lambda0 (", learn.lambda0, ")")
                           : std::string());
}

}  // namespace

std::string complaint(const Health& health, double target, const LearnChoice& learn) {
  // While the chances are those of the start, only what S ends with is expected of the signs.
  const double due = undecided(health, learn) ? std::min(target, 1 - learn.rho) : target;
  if (health.density < due / 2) {
    return cat("S has collapsed: ", percent(health.density), " of its entries are left of ",
               percent(due), "; ", cause_of_collapse(health, learn));
  }
  if (health.density > 2 * target) {
    return cat("S does not get sparse: ", percent(health.density), " of its entries are left, not ",
               percent(target), "; ", remedy_of_density(learn));
  }
  if (health.dead_columns > kMostDeadColumns) {
    return cat(percent(health.dead_columns), " of the columns of S are empty; ",
               cause_of_dead_columns(health, learn));
  }
  if (health.frozen > kMostFrozen) {
    return cat(percent(health.frozen), " of the masks of S are frozen: their derivative is below ",
               kFrozenSlope, "; raise model.attention.",
               learn.tau ? cat("tau (", *learn.tau, ")") : cat("tau_min (", learn.tau_min, ")"),
               " to 0.2");
  }
  return {};
}

void Watch::look(const nn::Clock& clock, bool wrong, std::int64_t lasting) {
  const std::int64_t settled = std::max(clock.warmup_steps, clock.max_steps / 10);
  const bool ends = clock.max_steps > 0 && clock.step >= clock.max_steps;
  if (!wrong || (clock.step <= settled && !ends)) {
    since_.reset();
    alarms_ = false;
    return;
  }
  if (!since_) since_ = clock.step;
  alarms_ = ends || clock.step - *since_ >= lasting;
}

}  // namespace fovea::attention::spa
