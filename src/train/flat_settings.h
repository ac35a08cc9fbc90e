#pragma once
// Settings as they can be compared one by one.

#include <map>
#include <string>

#include "config/node.h"

namespace fovea::train {

// "optim.lr" -> "0.001": every value under its full key, as JSON; a list is one value.
std::map<std::string, std::string> flat_settings(const config::Node& settings);

}  // namespace fovea::train
