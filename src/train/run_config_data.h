#pragma once
// The keys below data.

#include "config/node.h"
#include "config/option.h"
#include "data/config.h"

namespace fovea::train {

// Reads them from a completed configuration, and puts the completed entries of data.mix into it.
data::DataConfig data_config(config::Node& resolved, config::Findings& findings);

}  // namespace fovea::train
