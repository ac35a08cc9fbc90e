#pragma once
// What a run's header says of its model.

#include <string>
#include <vector>

#include "models/transformer.h"

namespace fovea::train {

// One line of sizes, then one for each run of layers whose attention uses the same kernel.
std::vector<std::string> model_summary(models::Transformer& model);

}  // namespace fovea::train
