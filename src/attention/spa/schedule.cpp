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

}  // namespace

double temperature(const LearnChoice& learn, const nn::Clock& clock) {
  if (learn.tau) return *learn.tau;
  const double end = learn.tau_steps ? *learn.tau_steps : of_the_run(clock, kTauShare, "tau_steps");
  const double done = std::min(1.0, static_cast<double>(clock.step) / end);
  return learn.tau_linear ? 1 - (1 - learn.tau_min) * done
                          : std::max(learn.tau_min, std::pow(learn.tau_min, done));
}

double sparsity(const LearnChoice& learn, const nn::Clock& clock) {
  const auto t = static_cast<double>(clock.step);
  const double t0 = learn.t0 ? *learn.t0 : static_cast<double>(clock.warmup_steps);
  const double t1 = learn.t1 ? *learn.t1 : of_the_run(clock, kRampShare, "t1");
  if (t >= t1) return learn.rho;
  if (t <= t0) return 0;
  const double left = 1 - (t - t0) / (t1 - t0);
  return learn.rho * (1 - left * left * left);
}

double regrow_share(const LearnChoice& learn, const nn::Clock& clock) {
  const double end = of_the_run(clock, kRegrowShare, "regrow");
  const auto t = static_cast<double>(clock.step);
  return t >= end ? 0 : learn.regrow_fraction / 2 * (1 + std::cos(kPi * t / end));
}

}  // namespace fovea::attention::spa
