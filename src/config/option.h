#pragma once
// Declared options: one table yields parsing, validation, help and docs.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/node.h"

namespace fovea::config {

// duration: seconds, or "1h30m", "5m", "300s"; completed to seconds. named_numbers: a map of
// numbers whose keys are free, completed to the order of its keys.
enum class Type {
  boolean,
  integer,
  number,
  duration,
  string,
  choice,
  strings,
  numbers,
  named_numbers,
  any
};

struct Option {
  std::string_view key;  // dotted below the node it is declared for
  Type type;
  std::string_view default_value;  // YAML text; "" : none (the key is then absent unless given)
  std::string_view range;    // "[1, 64]", "(0, 1]", "[1, inf)"; for a choice "a | b | c"; "" : any;
                             // for an integer that a word may stand for "[1, 64] | auto"
  std::string_view meaning;  // one sentence
};

// What is wrong with a configuration, collected so that all of it is reported at once.
class Findings {
 public:
  // `key` is the full dotted path that is to blame, `what` the rest of the sentence.
  void add(const Place& place, std::string_view key, std::string what);
  // Whether something was found at `key` or at a section above it; a check that needs its value is
  // then pointless.
  bool has(std::string_view key) const;
  // Throws one ConfigError if anything was found: a line each, "place: what", in the order of the
  // file.
  void raise() const;

 private:
  struct Finding {
    Place place;
    std::string key, what;
  };
  std::vector<Finding> found_;
};

// Checks `node` (a map, or null for an empty one) against `options` and fills in defaults; the
// result has the keys in the order of `options`, numbers in one spelling (1_000 becomes 1000, 3e-4
// 0.0003). An empty value is the same as none, and so is an empty map of numbers. Unknown keys name
// the nearest declared one; wrong types and values out of range name place, key and range. All
// findings are collected into one ConfigError, a line each. `prefix` ("model.attention", may be
// empty) is put before keys in messages.
Node complete(const Node& node, std::span<const Option> options, std::string_view prefix);
// The same, adding to `findings`; a faulty value is replaced by its default, so that checks can go
// on.
Node complete(const Node& node, std::span<const Option> options, std::string_view prefix,
              Findings& findings);

// As written in help and docs: "integer in [1, 64]", "layer | rms", "true | false".
std::string type_text(const Option& option);
// Markdown table with a row "| key | type | default | meaning |" an option.
std::string markdown(std::span<const Option> options, std::string_view prefix);
// Aligned plain text for --help: a line an option.
std::string plain(std::span<const Option> options, std::string_view prefix);

}  // namespace fovea::config
