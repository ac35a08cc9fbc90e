#pragma once
// Bytes of a text file, checked.

#include <string>
#include <string_view>

namespace fovea::config {

// Text without a byte order mark, lines ending in \n; up to the first byte that is not UTF-8 or a
// control character, which `problem` then names.
struct CleanText {
  std::string text, problem;
};
CleanText clean_text(std::string_view bytes);

bool is_utf8(std::string_view bytes);

}  // namespace fovea::config
