#pragma once
// Stretches of tokens, as they stand or turned round.

#include "kernels/dispatch.h"

namespace fovea {

// Token t of the shorter side is token first + t of the longer one, or first + n - 1 - t if
// `reversed`, n being the shorter side's length.
//   to, from [B,H,.,D] of one dtype, any; `to` contiguous, `from` of any strides. If `to` is the
//   longer side, its other tokens become `rest`.
FOVEA_KERNEL(move_tokens, StreamRef, const View& to, const View& from, std::int64_t first,
             bool reversed, double rest)

}  // namespace fovea
