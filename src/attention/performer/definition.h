#pragma once
// The Performer by its formulas, for the checks.

#include "attention/registry.h"

namespace fovea::attention {

// AttentionSpec::definition. Denominators of softmax features have no floor here: kernels apply it
// to features divided by their largest, which no check comes near.
Tensor performer_definition(Attention& method, const AttentionConfig& config,
                            const config::Node& options, const AttentionInput& in);

}  // namespace fovea::attention
