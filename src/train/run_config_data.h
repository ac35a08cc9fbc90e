#pragma once
// The keys below data.

#include <string>
#include <vector>

#include "config/node.h"
#include "config/option.h"
#include "data/config.h"

namespace fovea::train {

// Reads them from a completed configuration, and puts the completed entries of data.mix into it.
data::DataConfig data_config(config::Node& resolved, config::Findings& findings);

// Keys below data that data.kind does not use. Those of the command line become findings; those of
// a file are returned, unless they have their defaults: a file may serve several kinds.
std::vector<std::string> unused_data_keys(const config::Node& given, const config::Node& resolved,
                                          config::Findings& findings);

}  // namespace fovea::train
