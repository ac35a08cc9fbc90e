// key=value arguments.

#include <algorithm>

#include "config/yaml.h"
#include "core/error.h"
#include "core/text.h"

namespace fovea::config {

namespace {

bool is_path(std::string_view key) {
  const auto letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
  };
  return !key.empty() && key.front() != '.' && key.back() != '.' &&
         key.find("..") == std::string_view::npos && std::all_of(key.begin(), key.end(), letter);
}

}  // namespace

void override_with(Node& node, std::span<const std::string> assignments) {
  for (const std::string& assignment : assignments) {
    const std::string source = cat("command line: ", assignment);
    const std::size_t equals = assignment.find('=');
    const std::string_view key = std::string_view(assignment).substr(0, equals);
    if (equals == std::string::npos || !is_path(key))
      throw ConfigError(cat(source, ": expected key=value, as in optim.lr=0.001"));
    const std::string_view text = std::string_view(assignment).substr(equals + 1);
    const Place place{.source = source, .line = 0, .column = 0};
    Node value = parse(text, source, false);
    // A value that is forgotten is no wish for the default (`key=null` is): a number or word must
    // not be empty, a string may.
    if (value.is_null()) value = text.empty() ? Node::scalar("", place, true) : Node::null(place);
    node.set(key, std::move(value));
  }
}

}  // namespace fovea::config
