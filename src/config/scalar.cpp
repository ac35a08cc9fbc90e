#include "config/scalar.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace fovea::config {

namespace {

// U+FEFF, which readers take away at the start of a text.
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// The number without underscores and "+", or "" if it is no decimal number:
// [-+]?(0|[1-9]d*)?(.d*)?(e[-+]?d+)?
std::string plain_decimal(std::string_view text) {
  std::string out;
  std::size_t i = 0;
  if (i < text.size() && (text[i] == '-' || text[i] == '+')) {
    if (text[i] == '-') out.push_back('-');
    ++i;
  }
  const std::size_t whole = out.size();
  for (; i < text.size() && (is_digit(text[i]) || text[i] == '_'); ++i) {
    if (is_digit(text[i])) {
      out.push_back(text[i]);
    } else if (out.size() == whole || i + 1 == text.size() || !is_digit(text[i + 1])) {
      return "";
    }
  }
  std::size_t digits = out.size() - whole;
  if (digits > 1 && out[whole] == '0') return "";
  if (digits == 0) out.push_back('0');
  if (i < text.size() && text[i] == '.') {
    out.push_back('.');
    for (++i; i < text.size() && is_digit(text[i]); ++i, ++digits)
      out.push_back(text[i]);
    out.push_back('0');
  }
  if (digits == 0) return "";
  if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
    out.push_back('e');
    ++i;
    if (i < text.size() && (text[i] == '-' || text[i] == '+')) {
      if (text[i] == '-') out.push_back('-');
      ++i;
    }
    if (i == text.size()) return "";
    for (; i < text.size() && is_digit(text[i]); ++i)
      out.push_back(text[i]);
  }
  return i == text.size() ? out : "";
}

template <class T>
std::optional<T> whole_of(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

bool is_null_text(std::string_view text) {
  return text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL";
}

std::optional<bool> to_bool(std::string_view text) {
  if (text == "true" || text == "True" || text == "TRUE") return true;
  if (text == "false" || text == "False" || text == "FALSE") return false;
  return std::nullopt;
}

std::optional<std::int64_t> to_int(std::string_view text) {
  const std::string decimal = plain_decimal(text);
  if (decimal.find_first_of(".e") == std::string::npos) return whole_of<std::int64_t>(decimal);
  const std::optional<double> value = whole_of<double>(decimal);
  if (!value || std::fabs(*value) >= 9007199254740992.0 || *value != std::floor(*value))
    return std::nullopt;
  return static_cast<std::int64_t>(*value);
}

std::optional<double> to_number(std::string_view text) {
  const std::optional<double> value = whole_of<double>(plain_decimal(text));
  return value && std::isfinite(*value) ? value : std::nullopt;
}

std::optional<double> to_seconds(std::string_view text) {
  if (const auto value = to_number(text)) return *value >= 0 ? value : std::nullopt;
  static constexpr std::array<std::pair<char, double>, 3> kUnits = {
      {{'h', 3600}, {'m', 60}, {'s', 1}}};
  double seconds = 0;
  bool any = false;
  for (const auto& [unit, size] : kUnits) {
    const std::size_t end = text.find(unit);
    if (end == std::string_view::npos) continue;
    const auto value = to_number(text.substr(0, end));
    if (!value || *value < 0) return std::nullopt;
    seconds += *value * size;
    any = true;
    text.remove_prefix(end + 1);
  }
  if (!any || !text.empty()) return std::nullopt;
  return seconds;
}

std::string number_text(double value) {
  // to_chars writes the shortest digits that read back; fixed while that stays short.
  constexpr std::size_t kLongestFixed = 12;
  std::array<char, 400> buffer{};
  char* const first = buffer.data();
  char* end = std::to_chars(first, first + buffer.size(), value, std::chars_format::fixed).ptr;
  if (end - first <= static_cast<std::ptrdiff_t>(kLongestFixed)) return std::string(first, end);
  end = std::to_chars(first, first + buffer.size(), value).ptr;
  std::string out(first, end);
  // YAML 1.1 takes 1e-20 for a string; 1.0e-20 is a number everywhere.
  const std::size_t exponent = out.find('e');
  if (exponent != std::string::npos && out.find('.') == std::string::npos)
    out.insert(exponent, ".0");
  return out;
}

bool needs_quotes(std::string_view text) {
  static constexpr std::array<std::string_view, 8> kOldBools = {"yes", "no", "on",   "off",
                                                                "y",   "n",  "true", "false"};
  if (is_null_text(text)) return true;
  const char first = text.front();
  if (is_digit(first) ||
      std::string_view("-+.?:,[]{}#&*!|>'\"%@`~=<").find(first) != std::string_view::npos) {
    return true;
  }
  if (first == ' ' || text.back() == ' ' || text.back() == ':') return true;
  if (text.find(": ") != std::string_view::npos || text.find(" #") != std::string_view::npos)
    return true;
  if (text.find_first_of(",[]{}?") != std::string_view::npos) return true;
  if (text.find(kByteOrderMark) != std::string_view::npos) return true;
  if (std::any_of(text.begin(), text.end(),
                  [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; })) {
    return true;
  }
  std::string lower(text);
  for (char& c : lower)
    c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return std::find(kOldBools.begin(), kOldBools.end(), lower) != kOldBools.end();
}

std::string quoted_text(std::string_view text) {
  static constexpr std::string_view kHex = "0123456789abcdef";
  std::string out = "\"";
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const auto byte = static_cast<unsigned char>(c);
    if (text.substr(i, kByteOrderMark.size()) == kByteOrderMark) {
      out += "\\ufeff";
      i += kByteOrderMark.size() - 1;
    } else if (c == '"' || c == '\\') {
      out.push_back('\\');
      out.push_back(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      out += "\\u00";
      out.push_back(kHex[byte >> 4]);
      out.push_back(kHex[byte & 15]);
    } else {
      out.push_back(c);
    }
  }
  out.push_back('"');
  return out;
}

}  // namespace fovea::config
