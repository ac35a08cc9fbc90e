#pragma once
// The cells of a study: what its grid or its points say.

#include <string>
#include <string_view>
#include <vector>

#include "study/study_file.h"

namespace fovea::study {

// "standard", "spa(width=32)", "[linear, standard]": a value as tables show it.
std::string label_of(const config::Node& value);

// "path: value" each. Reported: sections instead of keys, and what a study decides itself.
std::vector<Setting> settings_of(const config::Node& node, std::string_view key,
                                 config::Findings& findings);

// All combinations, the first axis changing slowest; an axis is a list of values, or a map of
// labels and values. Fills in the axes.
std::vector<Cell> cells_of_grid(const config::Node& node, std::vector<std::string>& axes,
                                config::Findings& findings);
// One a point: a map of settings, and its name unless its settings are to name it.
std::vector<Cell> cells_of_points(const config::Node& node, std::vector<std::string>& axes,
                                  config::Findings& findings);

}  // namespace fovea::study
