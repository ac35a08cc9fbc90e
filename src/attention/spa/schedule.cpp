#include "attention/spa/schedule.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/text.h"

namespace fovea::attention::spa {

namespace {

constexpr double kTauShare = 0.8, kRampShare = 0.5, kRegrowShare = 0.75;
constexpr double kPi = 3.14159265358979323846;

double of_the_run(const nn::Clock& clock, double share, const char* key) {
  if (clock.max_steps > 0) return share * static_cast<double>(clock.max_steps);
  if (clock.step == 0) return 1;  // the beginning is the same, however long the run
  throw ConfigError(cat("model.attention.", key,
                        " must be given where the length of the run is unknown: without "
                        "train.max_steps or train.max_tokens it cannot follow from it"));
}

struct Ramp {
  double t0 = 0, t1 = 0;
};
Ramp ramp(const LearnChoice& learn, const nn::Clock& clock) {
  return {learn.t0 ? *learn.t0 : static_cast<double>(clock.warmup_steps),
          learn.t1 ? *learn.t1 : of_the_run(clock, kRampShare, "t1")};
}

// That pruning takes all that it takes at once, or nothing; or "".
std::string cliff(const LearnChoice& learn, const nn::Clock& run) {
  if (!learn.t1 && run.max_steps == 0) return {};
  const auto [t0, t1] = ramp(learn, run);
  const bool asked_for = learn.t0 && learn.t1 && t0 == t1;
  const auto every = static_cast<double>(learn.prune_every);
  const double first = (std::floor(t0 / every) + 1) * every;  // that finds sparsity risen
  if (learn.rho == 0 || asked_for || first < t1) return {};
  const double falls = std::max(first, std::ceil(t1 / every) * every);
  if (run.max_steps > 0 && falls > static_cast<double>(run.max_steps)) {
    return cat("S is never pruned: the first of model.attention.prune_every (", learn.prune_every,
               ") that would prune is step ", falls, ", and the run has ", run.max_steps,
               "; lower it");
  }
  return cat("S is pruned from all of its entries to ", percent(1 - learn.rho),
             " at once: sparsity rises from step ", t0, " (model.attention.t0",
             learn.t0 ? "" : ", by default the warm-up", ") to step ", t1, " (model.attention.t1",
             learn.t1 ? "" : ", by default half of the run",
             "), and model.attention.prune_every is ", learn.prune_every, "; ",
             t0 >= t1 ? cat(learn.t0 ? "lower" : "set", " model.attention.t0 below t1, or ",
                            learn.t1 ? "raise" : "set", " t1")
                      : std::string("lower the last"));
}

}  // namespace

double temperature(const LearnChoice& learn, const nn::Clock& clock) {
  if (!learn.draws()) return 1;  // of nothing
  if (learn.tau) return *learn.tau;
  const double end = learn.tau_steps ? *learn.tau_steps : of_the_run(clock, kTauShare, "tau_steps");
  const double done = std::min(1.0, static_cast<double>(clock.step) / end);
  return learn.tau_linear ? 1 - (1 - learn.tau_min) * done
                          : std::max(learn.tau_min, std::pow(learn.tau_min, done));
}

double sparsity(const LearnChoice& learn, const nn::Clock& clock) {
  const auto t = static_cast<double>(clock.step);
  const auto [t0, t1] = ramp(learn, clock);
  if (t >= t1) return learn.rho;
  if (t <= t0) return 0;
  const double left = 1 - (t - t0) / (t1 - t0);
  return learn.rho * (1 - left * left * left);
}

double regrow_share(const LearnChoice& learn, const nn::Clock& clock) {
  const double end =
      learn.regrow_end ? *learn.regrow_end : of_the_run(clock, kRegrowShare, "regrow_end");
  const auto t = static_cast<double>(clock.step);
  return t >= end ? 0 : learn.regrow_fraction / 2 * (1 + std::cos(kPi * t / end));
}

std::vector<std::string_view> due_without_length(const LearnChoice& learn) {
  std::vector<std::string_view> out;
  const bool prunes = learn.prune_every > 0;
  if (learn.draws() && !learn.tau && !learn.tau_steps) out.emplace_back("tau_steps");
  if (prunes && !learn.t1) out.emplace_back("t1");
  if (prunes && learn.regrow != LearnChoice::Regrow::none && !learn.regrow_end)
    out.emplace_back("regrow_end");
  return out;
}

std::vector<std::string> oddities(const LearnChoice& learn, int columns, const nn::Clock& run) {
  if (learn.prune_every == 0) {
    if (learn.draws() || learn.rho == 0) return {};
    return {
        cat("S never gets sparse: under model.attention.learn_mode: magnitude only pruning "
            "removes entries, and model.attention.prune_every is 0; give it, or rho: 0")};
  }
  std::vector<std::string> out;
  const double held = static_cast<double>(learn.min_per_row) / columns;
  if (held > 1 - learn.rho) {
    out.push_back(cat("model.attention.min_per_row (", learn.min_per_row, " of ", columns,
                      ") keeps ", percent(held),
                      " of the entries of S, so that model.attention.rho (", learn.rho,
                      ") is not reached; lower one of them"));
  }
  const std::string at_once = cliff(learn, run);
  if (!at_once.empty() && held < 1) out.push_back(at_once);
  return out;
}

}  // namespace fovea::attention::spa
