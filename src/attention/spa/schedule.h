#pragma once
// What changes from step to step while S is learned: pure functions of the clock. Source:
// spa.md 1.6.

#include "attention/spa/settings.h"

namespace fovea::attention::spa {

// The temperature of step clock.step: from 1, exponentially or linearly, to tau_min at tau_steps.
// Throws ConfigError past step 0 of a run of unknown length, if that is needed.
double temperature(const LearnChoice& learn, const nn::Clock& clock);
// The sparsity that pruning after clock.step steps leaves: 0 until t0, rho from t1 on, a cubic in
// between. Throws as temperature.
double sparsity(const LearnChoice& learn, const nn::Clock& clock);
// The share of the active entries that is replaced: a half cosine down to 0 at 0.75 of the run.
double regrow_share(const LearnChoice& learn, const nn::Clock& clock);

}  // namespace fovea::attention::spa
