// Options as help and as documentation.

#include <algorithm>
#include <array>

#include "config/option.h"
#include "core/text.h"

namespace fovea::config {

namespace {

std::string full_key(const Option& option, std::string_view prefix) {
  return prefix.empty() ? std::string(option.key) : cat(prefix, ".", option.key);
}

std::string cell(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out.push_back('\\');
    out.push_back(c);
  }
  return out;
}

// " in [1, 64] | auto" as it is read aloud.
std::string with_or(std::string text) {
  for (std::size_t at = text.find(" | "); at != std::string::npos; at = text.find(" | "))
    text.replace(at, 3, " or ");
  return text;
}

}  // namespace

std::string type_text(const Option& option) {
  const std::string in = option.range.empty() ? "" : cat(" in ", option.range);
  switch (option.type) {
    case Type::boolean:
      return "true | false";
    case Type::integer:
      return cat("integer", with_or(in));
    case Type::number:
      return cat("number", in);
    case Type::duration:
      return cat("duration (300, 5m, 1h30m)", in.empty() ? in : cat(in, " seconds"));
    case Type::string:
      return "text";
    case Type::choice:
      return std::string(option.range);
    case Type::strings:
      return "list of texts";
    case Type::numbers:
      return cat("list of numbers", in);
    case Type::named_numbers:
      return cat("map of numbers", in);
    case Type::any:
      break;
  }
  return option.range.empty() ? "value" : std::string(option.range);
}

std::string markdown(std::span<const Option> options, std::string_view prefix) {
  std::string out = "| key | type | default | meaning |\n|---|---|---|---|\n";
  for (const Option& option : options) {
    const std::string value =
        option.default_value.empty() ? "" : cat("`", option.default_value, "`");
    out += cat("| `", full_key(option, prefix), "` | ", cell(type_text(option)), " | ", cell(value),
               " | ", cell(option.meaning), " |\n");
  }
  return out;
}

std::string plain(std::span<const Option> options, std::string_view prefix) {
  std::vector<std::array<std::string, 3>> rows;
  std::array<std::size_t, 2> widths{};
  for (const Option& option : options) {
    const std::string value = option.default_value.empty() ? "" : cat(" = ", option.default_value);
    rows.push_back(
        {cat(full_key(option, prefix), value), type_text(option), std::string(option.meaning)});
    for (std::size_t i = 0; i < widths.size(); ++i)
      widths[i] = std::max(widths[i], rows.back()[i].size());
  }
  std::string out;
  for (const auto& [key, type, meaning] : rows) {
    out += cat("  ", key, std::string(widths[0] - key.size() + 2, ' '), type,
               std::string(widths[1] - type.size() + 2, ' '), meaning, "\n");
  }
  return out;
}

}  // namespace fovea::config
