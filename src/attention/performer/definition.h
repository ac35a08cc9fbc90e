#pragma once
// The Performer by its formulas, for the checks.

#include "attention/registry.h"

namespace fovea::attention {

// AttentionSpec::definition.
Tensor performer_definition(Attention& method, const AttentionConfig& config,
                            const config::Node& options, const AttentionInput& in);

}  // namespace fovea::attention
