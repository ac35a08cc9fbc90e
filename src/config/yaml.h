#pragma once
// YAML files and key=value overrides become Nodes.

#include <span>
#include <string>
#include <string_view>

#include "config/node.h"

namespace fovea::config {

// Throws ConfigError: "path: cannot be read: ...", or "path:line:column: ..." for bad YAML (columns
// count characters). The file must be one document in UTF-8 of at most 4 MiB, nested at most 64
// deep, with at most 100,000 values once its aliases are expanded. Duplicate keys, keys that are
// collections or empty, tags, directives and tabs in the indentation are refused. An empty file is
// null.
Node load(const std::string& path);
// The same for text in memory; `source` stands for the path. With `lines` false, places have no
// line (one-line text given on a command line).
Node parse(std::string_view text, const std::string& source, bool lines = true);
// Applies "a.b.c=value" (the value is YAML; nothing behind "=" is an empty string, which only keys
// of text take) to `node`, in order. Values get the place "command line: a.b.c=value". Throws
// ConfigError naming the argument.
void override_with(Node& node, std::span<const std::string> assignments);

}  // namespace fovea::config
