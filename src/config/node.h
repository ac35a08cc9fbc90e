#pragma once
// A YAML value that knows where it stands, and its typed, range-checked reading.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fovea::config {

// Where a value was written: "configs/lm/a.yaml:14:7", "command line: model.n_layer=0", or
// "default".
struct Place {
  std::string source;
  int line = 0, column = 0;  // from 1; 0: no line
  std::string str() const;
};

// A value, copied freely. Scalars keep their text; their type is decided by whoever reads them.
class Node {
 public:
  enum class Kind { null, scalar, list, map };

  Node() = default;
  static Node null(Place place);
  static Node scalar(std::string text, Place place, bool quoted = false);
  static Node list(std::vector<Node> items, Place place);
  static Node map(std::vector<std::pair<std::string, Node>> entries, Place place);

  Kind kind() const { return kind_; }
  bool is_null() const { return kind_ == Kind::null; }
  const Place& place() const { return place_; }
  // Where the key of a map's entry was written; the value's place for everything else.
  const Place& key_place() const { return key_place_.source.empty() ? place_ : key_place_; }
  void set_key_place(Place place) { key_place_ = std::move(place); }
  const std::string& text() const { return text_; }
  bool quoted() const { return quoted_; }
  const std::vector<Node>& items() const { return items_; }
  const std::vector<std::pair<std::string, Node>>& entries() const { return entries_; }

  // The value under a dotted path ("model.attention.kind"), or null if there is none.
  const Node* find(std::string_view path) const;
  // Sets the value under a dotted path, making maps on the way. Throws ConfigError through a
  // scalar.
  void set(std::string_view path, Node value);

  // Typed readings of a scalar or of a list (a lone scalar is a list of one). Each throws
  // ConfigError "place: key is 'text', but must be ...". What counts as a bool or a number:
  // config/scalar.h.
  bool as_bool(std::string_view key) const;
  std::int64_t as_int(std::string_view key) const;
  double as_number(std::string_view key) const;
  std::string as_string(std::string_view key) const;
  std::vector<std::string> as_strings(std::string_view key) const;
  std::vector<double> as_numbers(std::string_view key) const;

  // The children that options declare, by dotted path: node.get_int("k") after the node was
  // validated and completed by config::complete (option.h), so that every key with a default is
  // present. Throws ConfigError if it is not.
  bool get_bool(std::string_view key) const;
  std::int64_t get_int(std::string_view key) const;
  double get_number(std::string_view key) const;
  std::string get_string(std::string_view key) const;
  std::vector<std::string> get_strings(std::string_view key) const;
  std::vector<double> get_numbers(std::string_view key) const;
  std::vector<std::pair<std::string, double>> get_named_numbers(std::string_view key) const;

  // What it is, for messages: "256", "'four'", "empty", "a list", "a map".
  std::string describe() const;

  // YAML text of this value, keys in their order; `indent` in spaces. Reads back as the same value.
  std::string yaml(int indent = 0) const;
  // JSON text of this value: plain scalars that read as bool, number or null become such, others
  // strings.
  std::string json() const;

 private:
  Kind kind_ = Kind::null;
  Place place_, key_place_;
  std::string text_;
  bool quoted_ = false;
  std::vector<Node> items_;
  std::vector<std::pair<std::string, Node>> entries_;
};

}  // namespace fovea::config
