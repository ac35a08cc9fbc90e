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

// Makes every layer's attention as the model would, for what methods refuse and registries alone
// know; `run` is sound otherwise. Throws ConfigError with all that they say, and where
// model.attention is a list, of which layer.
void check_attention_layers(const RunConfig& run);

}  // namespace fovea::train
