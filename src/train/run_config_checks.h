#pragma once
// What must hold between keys; single keys were checked against the schema.

#include "config/node.h"
#include "config/option.h"
#include "train/run_config.h"

namespace fovea::train {

// Whether a configuration is also held against what this machine has.
enum class Machine { here, any };

// Adds a finding for every contradiction in `run`. `given` is the configuration as it was written,
// for the places; where a key is at fault already, what depends on it is not judged.
void check_run(const RunConfig& run, const config::Node& given, Machine machine,
               config::Findings& findings);

}  // namespace fovea::train
