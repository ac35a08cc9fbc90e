#pragma once
// SPA by its formulas, for the checks: S element by element, then every pair's score.

#include "attention/attention.h"

namespace fovea::attention::spa {

// AttentionSpec::definition, of evaluation: learned masks as they are without noise.
Tensor by_definition(Attention& method, const AttentionConfig& config, const config::Node& options,
                     const AttentionInput& in);

}  // namespace fovea::attention::spa
