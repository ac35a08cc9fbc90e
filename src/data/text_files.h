#pragma once
// Finding files; private to data.

#include <string>
#include <string_view>
#include <vector>

namespace fovea::data {

// The order that texts are read in: folder by folder, names that are numbers (up to their first
// dot) by value and before all others, which are in bytewise order. Source: data.md 0.
bool comes_before(std::string_view path, std::string_view other);

// Paths of all regular files below `folder`, relative to it, in that order. Names that begin
// with a dot are skipped; links are followed, but no folder is entered twice. Throws IoError.
std::vector<std::string> list_files(const std::string& folder);

}  // namespace fovea::data
