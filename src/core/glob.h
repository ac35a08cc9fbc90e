#pragma once
// Patterns over paths.

#include <string_view>

namespace fovea {

// Whether `pattern` matches all of `text`: `*` stands for any characters (dots included, none
// allowed), `?` for exactly one, everything else for itself.
bool glob_match(std::string_view pattern, std::string_view text);

}  // namespace fovea
