#pragma once
// Foreign text made safe for messages.

#include <string>
#include <string_view>

namespace fovea::data {

// "text" in double quotes with control characters and bytes that are not UTF-8 as \xNN (a file must
// not steer the user's terminal), cut after `most` bytes with "...".
std::string quote(std::string_view text, std::size_t most = 80);

// The length of the UTF-8 sequence that starts at text[at], or 0 if it is not one (overlong forms,
// surrogates and code points above U+10FFFF are not). Source: RFC 3629, section 4.
int utf8_length(std::string_view text, std::size_t at);
bool is_utf8(std::string_view text);

}  // namespace fovea::data
