#pragma once
// Slurm's notations for many hosts in few characters.

#include <string>
#include <vector>

namespace fovea::dist {

// "gpu[01-03,7]-ib,cpu" -> gpu01-ib gpu02-ib gpu03-ib gpu7-ib cpu. At most 65,536 names. Throws
// ConfigError.
std::vector<std::string> expand_hostlist(const std::string& text);

// "4(x2),3" -> 4 4 3: a number for each host. Empty if it is none such.
std::vector<int> expand_counts(const std::string& text);

}  // namespace fovea::dist
