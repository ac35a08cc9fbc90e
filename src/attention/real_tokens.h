#pragma once
// How many of the new tokens of a decoding step count.

#include <cstdint>
#include <vector>

#include "attention/attention.h"

namespace fovea::attention {

// For each sample, by key_valid; all where it is undefined, or on meta. Throws ShapeError unless
// the real ones come first.
std::vector<std::int64_t> real_tokens(const Ctx& ctx, const AttentionInput& in);

}  // namespace fovea::attention
