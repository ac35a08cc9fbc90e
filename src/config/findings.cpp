#include <algorithm>

#include "config/option.h"
#include "core/error.h"
#include "core/text.h"

namespace fovea::config {

void Findings::add(const Place& place, std::string_view key, std::string what) {
  found_.push_back({place, std::string(key), std::move(what)});
}

bool Findings::has(std::string_view key) const {
  return std::any_of(found_.begin(), found_.end(), [&](const Finding& finding) {
    return finding.key == key || key.starts_with(finding.key + ".");
  });
}

void Findings::raise() const {
  if (found_.empty()) return;
  std::vector<Finding> sorted = found_;
  std::stable_sort(sorted.begin(), sorted.end(), [](const Finding& a, const Finding& b) {
    // What has no line (the command line) comes last, as it was added.
    if ((a.place.line > 0) != (b.place.line > 0)) return a.place.line > 0;
    return std::pair(a.place.line, a.place.column) < std::pair(b.place.line, b.place.column);
  });
  std::vector<std::string> lines;
  lines.reserve(sorted.size());
  for (const Finding& finding : sorted)
    lines.push_back(cat(finding.place.str(), ": ", finding.what));
  throw ConfigError(join(lines, "\n"));
}

}  // namespace fovea::config
