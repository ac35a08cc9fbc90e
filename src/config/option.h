#pragma once
// Declared options: one table yields parsing, validation, help and docs.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/node.h"

namespace fovea::config {

enum class Type { boolean, integer, number, string, choice, strings, numbers, any };

struct Option {
  std::string_view key;            // dotted below the node it is declared for
  Type type;
  std::string_view default_value;  // YAML text; "" : none (the key is then absent unless given)
  std::string_view range;          // "[1, 64]", "(0, 1]", "[1, inf)"; for a choice "a | b | c"; "" : any
  std::string_view meaning;        // one sentence
};

// Checks `node` (a map, or null for an empty one) against `options` and fills in defaults. Unknown keys
// name the nearest declared one; wrong types and values out of range name place, key and range. All
// findings are collected into one ConfigError, a line each. `prefix` is put before keys in messages.
Node complete(const Node& node, std::span<const Option> options, std::string_view prefix);

// Markdown rows "| key | type | default | range | meaning |".
std::string markdown(std::span<const Option> options, std::string_view prefix);
// Aligned plain text for --help.
std::string plain(std::span<const Option> options, std::string_view prefix);

}  // namespace fovea::config
