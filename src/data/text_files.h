#pragma once
// Finding and reading text files; private to data.

#include <cstdint>
#include <string>
#include <vector>

namespace fovea::data {

// Paths of all regular files below `folder`, relative to it, in bytewise order (see Corpus::load).
std::vector<std::string> list_files(const std::string& folder);

// Appends a file's clean bytes to `bytes`.
struct Cleaned {
  std::int64_t byte_order_marks = 0, carriage_returns = 0;
};
Cleaned append_text_file(const std::string& path, std::string& bytes);

}  // namespace fovea::data
