#pragma once
// Finding files; private to data.

#include <string>
#include <vector>

namespace fovea::data {

// Paths of all regular files below `folder`, relative to it, in bytewise order. Names that begin
// with a dot are skipped; links are followed, but no folder is entered twice. Throws IoError.
std::vector<std::string> list_files(const std::string& folder);

}  // namespace fovea::data
