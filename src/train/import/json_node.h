#pragma once
// JSON files of other programs as the values that config/option.h checks.

#include <cstdint>
#include <string>

#include "config/node.h"

namespace fovea::train {

// Strings are quoted scalars, numbers and truth values plain ones; every place is the path.
// Throws IoError: more than `most_bytes`, not one JSON object, nested deeper than 32 levels, a name
// twice in one object.
config::Node read_json(const std::string& path, std::uint64_t most_bytes);

}  // namespace fovea::train
