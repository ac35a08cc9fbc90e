// Node as YAML, as JSON, and in messages.

#include <algorithm>

#include "config/node.h"
#include "config/scalar.h"
#include "core/text.h"

namespace fovea::config {

namespace {

bool is_collection(const Node& node) {
  return node.kind() == Node::Kind::list || node.kind() == Node::Kind::map;
}

// Values that stand behind their key: scalars, empty collections, lists of scalars.
bool fits_a_line(const Node& node) {
  if (node.kind() == Node::Kind::map) return node.entries().empty();
  return std::none_of(node.items().begin(), node.items().end(), is_collection);
}

std::string key_text(const std::string& key) {
  return needs_quotes(key) ? quoted_text(key) : key;
}

std::string scalar_text(const Node& node) {
  const bool plain_value = to_bool(node.text()).has_value() || to_number(node.text()).has_value();
  if (!node.quoted() && plain_value) return node.text();
  return needs_quotes(node.text()) ? quoted_text(node.text()) : node.text();
}

std::string line_text(const Node& node) {
  switch (node.kind()) {
    case Node::Kind::null:
      return "null";
    case Node::Kind::scalar:
      return scalar_text(node);
    case Node::Kind::map:
      return "{}";
    case Node::Kind::list:
      break;
  }
  std::vector<std::string> items;
  for (const Node& item : node.items())
    items.push_back(line_text(item));
  return cat("[", join(items, ", "), "]");
}

std::string json_scalar(const Node& node) {
  if (node.quoted()) return quoted_text(node.text());
  if (const auto value = to_bool(node.text())) return *value ? "true" : "false";
  if (const auto value = to_int(node.text())) return cat(*value);
  if (const auto value = to_number(node.text())) return number_text(*value);
  return quoted_text(node.text());
}

}  // namespace

std::string Node::describe() const {
  switch (kind_) {
    case Kind::null:
      return "empty";
    case Kind::list:
      return "a list";
    case Kind::map:
      return "a map";
    case Kind::scalar:
      break;
  }
  if (!quoted_ && to_number(text_)) return text_;
  constexpr std::size_t kLongest = 60;
  std::size_t end = std::min(text_.size(), kLongest);
  while (end < text_.size() && (static_cast<unsigned char>(text_[end]) & 0xC0) == 0x80)
    --end;  // whole characters
  const std::string shown = end < text_.size() ? cat(text_.substr(0, end), "...") : text_;
  return quoted_ ? quoted_text(shown) : cat("'", shown, "'");
}

std::string Node::yaml(int indent) const {
  const std::string pad(static_cast<std::size_t>(indent), ' ');
  if (fits_a_line(*this)) return cat(pad, line_text(*this), "\n");
  std::string out;
  for (const auto& [key, value] : entries_) {
    out += fits_a_line(value) ? cat(pad, key_text(key), ": ", line_text(value), "\n")
                              : cat(pad, key_text(key), ":\n", value.yaml(indent + 2));
  }
  for (const Node& item : items_) {
    // The item is written two columns deeper, and its first two columns hold the dash.
    std::string text = item.yaml(indent + 2);
    text[pad.size()] = '-';
    out += text;
  }
  return out;
}

std::string Node::json() const {
  std::vector<std::string> parts;
  switch (kind_) {
    case Kind::null:
      return "null";
    case Kind::scalar:
      return json_scalar(*this);
    case Kind::list:
      for (const Node& item : items_)
        parts.push_back(item.json());
      return cat("[", join(parts, ", "), "]");
    case Kind::map:
      for (const auto& [key, value] : entries_)
        parts.push_back(cat(quoted_text(key), ": ", value.json()));
      return cat("{", join(parts, ", "), "}");
  }
  return "null";
}

}  // namespace fovea::config
