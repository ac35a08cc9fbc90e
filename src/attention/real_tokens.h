#pragma once
// New tokens of samples that get different numbers of them while decoding.

#include <vector>

#include "attention/attention.h"

namespace fovea::attention {

// How many of the new tokens of each sample are real; they must come first. Throws ShapeError if
// one stands behind a padded one.
std::vector<std::int64_t> real_tokens(const Ctx& ctx, const AttentionInput& in);

}  // namespace fovea::attention
