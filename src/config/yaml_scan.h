#pragma once
// Checks of YAML text that yaml-cpp 0.7 leaves out.

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>

namespace fovea::config {

// Where in the text, in bytes from its beginning, and what is wrong there.
struct ScanError : std::runtime_error {
  ScanError(std::size_t offset, const std::string& what) : std::runtime_error(what), at(offset) {}
  std::size_t at;
};

// yaml-cpp 0.7 accepts, and reads as something else than was meant: a quoted text without its end,
// keys without a colon, entries between commas that are empty, lines of a multi-line value that
// stand left of it, tabs for indentation, comments glued to a value, directives. Throws ScanError
// for these, and for nesting deeper than 64. Text that passes may still be refused by the parser.
void check_structure(std::string_view text);

}  // namespace fovea::config
