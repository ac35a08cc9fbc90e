#pragma once
// How many of the new tokens of a decoding step count.

#include <cstdint>
#include <vector>

#include "autograd/ctx.h"

namespace fovea::attention {

// For each sample of `tokens`, by key_valid u8 [batch, tokens]; all where it is undefined, or on
// meta. Throws ShapeError unless the real ones come first.
std::vector<std::int64_t> real_tokens(const Ctx& ctx, const Tensor& key_valid, std::int64_t batch,
                                      std::int64_t tokens);

}  // namespace fovea::attention
