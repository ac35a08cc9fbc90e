#pragma once
// What changes from step to step while S is learned: pure functions of the clock. Source:
// spa.md 1.6.

#include <string>
#include <string_view>
#include <vector>

#include "attention/spa/settings.h"

namespace fovea::attention::spa {

// The temperature of step clock.step: from 1, exponentially or linearly, to tau_min at tau_steps.
// Throws ConfigError past step 0 of a run of unknown length, if that is needed.
double temperature(const LearnChoice& learn, const nn::Clock& clock);
// The sparsity that pruning after clock.step steps leaves: 0 until t0, rho from t1 on, a cubic in
// between. Throws as temperature.
double sparsity(const LearnChoice& learn, const nn::Clock& clock);
// The share of the active entries that is replaced: a half cosine down to 0 at regrow_end. Throws
// as temperature.
double regrow_share(const LearnChoice& learn, const nn::Clock& clock);

// The options that a run of unknown length must give, since they follow from its length.
std::vector<std::string_view> due_without_length(const LearnChoice& learn);
// What a run does that nobody may have meant, a sentence each: never sparse, or all at once.
// `columns` of S; `run` as it starts.
std::vector<std::string> oddities(const LearnChoice& learn, int columns, const nn::Clock& run);

}  // namespace fovea::attention::spa
