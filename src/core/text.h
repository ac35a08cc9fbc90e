#pragma once
// Message building without a formatting library (fmt stays in log.cpp for compile time).

#include <concepts>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fovea {

namespace text_detail {
void append(std::string& to, std::string_view text);
void append(std::string& to, double value);  // shortest form that reads back, as printf %g
void append(std::string& to, long long value);
void append(std::string& to, unsigned long long value);
inline void append(std::string& to, char value) {
  to.push_back(value);
}
inline void append(std::string& to, bool value) {
  append(to, std::string_view(value ? "true" : "false"));
}
template <class T>
void append_any(std::string& to, const T& value) {
  if constexpr (std::same_as<T, bool> || std::same_as<T, char>) {
    append(to, value);
  } else if constexpr (std::floating_point<T>) {
    append(to, static_cast<double>(value));
  } else if constexpr (std::signed_integral<T>) {
    append(to, static_cast<long long>(value));
  } else if constexpr (std::unsigned_integral<T>) {
    append(to, static_cast<unsigned long long>(value));
  } else {
    append(to, std::string_view(value));
  }
}
}  // namespace text_detail

// Concatenates strings, characters, bools and numbers: cat("k is ", k, ", but ...").
template <class... T>
std::string cat(const T&... parts) {
  std::string out;
  (text_detail::append_any(out, parts), ...);
  return out;
}

// "41.2 GiB", "512 B": three significant digits, binary units.
std::string human_bytes(double bytes);
// "612k", "1.25M": three significant digits, decimal units.
std::string human_count(double count);
// "a, b, c".
std::string join(std::span<const std::string> parts, std::string_view separator);
// The candidate with the smallest edit distance to `word`, or "" if none is near (distance at most
// a third of the length, at least 2).
std::string nearest(std::string_view word, std::span<const std::string> candidates);

}  // namespace fovea
