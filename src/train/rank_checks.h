#pragma once
// That the ranks of a run do the same: before it, and while it goes on. All ranks call these.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "train/ranks.h"
#include "train/run_state.h"

namespace fovea::train {

// Ranks with other settings would call other operations. `options`: of the command, by name. Throws
// ConfigError that names the rank and what differs, with both values.
void require_same_settings(const Ranks& ranks, const RunConfig& config,
                           const std::map<std::string, std::string>& options);

// Ranks that read other data or compute with other instructions would go on for long before anybody
// noticed. Throws ConfigError as above.
void require_same_computation(const Ranks& ranks, const RunConfig& config,
                              std::string_view data_fingerprint, const Arithmetic& arithmetic);

// All ranks make the same updates, so that a difference of weights is a broken machine or a bug.
// `mine`: Trainer::weights_fingerprint(). Throws CommunicationError that names the ranks which
// differ from most, or all if there is no majority.
void compare_weights(const Ranks& ranks, std::int64_t step, std::uint64_t mine);

// "4 ranks on gpu07, 8 micro-batches of 4, gradients in one fixed tree".
std::string ranks_text(const Ranks& ranks, const RunConfig& config);

}  // namespace fovea::train
