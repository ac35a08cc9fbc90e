#pragma once
// YAML files and key=value overrides become Nodes.

#include <span>
#include <string>
#include <string_view>

#include "config/node.h"

namespace fovea::config {

// Throws ConfigError: "path: cannot be read: ...", or "path:line:column: ..." for bad YAML. Duplicate
// keys, aliases to nothing, several documents, non-string keys, tags and files over 4 MiB are refused.
Node load(const std::string& path);
Node parse(std::string_view text, const std::string& source);
// Applies "a.b.c=value" (the value is YAML) to `node`. Throws ConfigError naming the argument.
void override_with(Node& node, std::span<const std::string> assignments);

}  // namespace fovea::config
