#include "core/text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

namespace fovea {

namespace text_detail {

void append(std::string& to, std::string_view text) {
  to.append(text);
}

void append(std::string& to, double value) {
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  to.append(buffer, end);
}

void append(std::string& to, long long value) {
  char buffer[24];
  to.append(buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr);
}

void append(std::string& to, unsigned long long value) {
  char buffer[24];
  to.append(buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr);
}

}  // namespace text_detail

namespace {

std::string scaled(double value, double step, std::span<const char* const> units) {
  std::size_t unit = 0;
  while (std::fabs(value) >= step * 0.9995 && unit + 1 < units.size()) {
    value /= step;
    ++unit;
  }
  char buffer[48];
  const char* format = std::fabs(value) >= 99.95 || unit == 0 ? "%.0f%s"
                       : std::fabs(value) >= 9.995            ? "%.1f%s"
                                                              : "%.2f%s";
  std::snprintf(buffer, sizeof buffer, format, value, units[unit]);
  return buffer;
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j)
    row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substitute = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({substitute, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string human_bytes(double bytes) {
  static constexpr const char* kUnits[] = {" B", " KiB", " MiB", " GiB", " TiB"};
  return scaled(bytes, 1024, kUnits);
}

std::string human_count(double count) {
  static constexpr const char* kUnits[] = {"", "k", "M", "G", "T"};
  return scaled(count, 1000, kUnits);
}

std::string join(std::span<const std::string> parts, std::string_view separator) {
  std::string out;
  for (const std::string& part : parts) {
    if (!out.empty()) out += separator;
    out += part;
  }
  return out;
}

std::string nearest(std::string_view word, std::span<const std::string> candidates) {
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(2, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const std::size_t distance = edit_distance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

}  // namespace fovea
