#pragma once
// Base64 with padding, as tiktoken's rank files have it.

#include <optional>
#include <string>
#include <string_view>

namespace fovea::data {

// Nothing if the text is not canonical base64: whole groups of four of the standard alphabet, "="
// only at the end, unused bits zero. Source: RFC 4648, section 4.
std::optional<std::string> base64_decode(std::string_view text);

}  // namespace fovea::data
