#include "train/json_text.h"

#include <cmath>
#include <cstdio>

#include "core/text.h"

namespace fovea::train {

std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out.push_back('\\');
      out.push_back(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (byte < 0x20 || byte == 0x7F) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", byte);
      out += escaped;
    } else {
      out.push_back(c);
    }
  }
  return out + "\"";
}

std::string json_number(double value) {
  return std::isfinite(value) ? cat(value) : "null";
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
