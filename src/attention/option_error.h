#pragma once
// How a method refuses an option's value when it is built.

#include <string_view>

#include "config/node.h"

namespace fovea::attention {

// Throws ConfigError "place: model.attention.KEY is VALUE, but REASON": where the option was
// written, else where the method was chosen.
[[noreturn]] void refuse_option(const config::Node& options, std::string_view key,
                                std::string_view reason);

// The same of `entry`, which stands in a list under KEY, as "window[1]" says.
[[noreturn]] void refuse_entry(const config::Node& options, const config::Node& entry,
                               std::string_view path, std::string_view reason);

}  // namespace fovea::attention
