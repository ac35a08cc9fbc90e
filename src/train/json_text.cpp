#include "train/json_text.h"

#include <cmath>
#include <cstdio>

#include "core/text.h"
#include "data/quote.h"

namespace fovea::train {

std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (std::size_t at = 0; at < text.size();) {
    const char c = text[at];
    const auto byte = static_cast<unsigned char>(c);
    const int length = data::utf8_length(text, at);
    if (c == '"' || c == '\\') {
      out.push_back('\\');
      out.push_back(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (byte < 0x20 || byte == 0x7F) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", byte);
      out += escaped;
    } else if (length == 0) {
      out += "\xEF\xBF\xBD";  // U+FFFD: a path may hold any bytes, JSON only UTF-8
    } else {
      out += text.substr(at, static_cast<std::size_t>(length));
    }
    at += static_cast<std::size_t>(length == 0 ? 1 : length);
  }
  return out + "\"";
}

std::string json_number(double value) {
  if (!std::isfinite(value)) return "null";
  // Counts stay digits: "1e+06" would be read as a real number.
  constexpr double kExact = 9007199254740992;  // 2^53
  if (value == std::floor(value) && std::fabs(value) < kExact && !std::signbit(value)) {
    return cat(static_cast<long long>(value));
  }
  return cat(value);
}

JsonObject& JsonObject::raw(std::string_view key, std::string_view json) {
  if (!body_.empty()) {
    body_ += ",";
    spread_ += ",\n";
  }
  const std::string entry = cat(json_string(key), ":", json);
  body_ += entry;
  spread_ += cat("  ", entry);
  return *this;
}

std::string JsonObject::lines() const {
  return cat("{\n", spread_, "\n}\n");
}

}  // namespace fovea::train
