#include "config/node.h"

#include <algorithm>

#include "config/scalar.h"
#include "core/error.h"
#include "core/text.h"

namespace fovea::config {

namespace {

[[noreturn]] void refuse(const Node& node, std::string_view key, std::string_view wanted) {
  throw ConfigError(
      cat(node.place().str(), ": ", key, " is ", node.describe(), ", but must be ", wanted));
}

// The text of an unquoted scalar: "4" in quotes is text, not a number.
std::string_view plain_text(const Node& node) {
  return node.kind() == Node::Kind::scalar && !node.quoted() ? std::string_view(node.text())
                                                             : std::string_view();
}

std::vector<Node> as_list(const Node& node, std::string_view key, std::string_view wanted) {
  if (node.kind() == Node::Kind::scalar) return {node};
  if (node.kind() != Node::Kind::list) refuse(node, key, wanted);
  return node.items();
}

const Node& declared(const Node& node, std::string_view key) {
  const Node* found = node.find(key);
  if (found == nullptr) throw ConfigError(cat(node.place().str(), ": ", key, " is missing"));
  return *found;
}

}  // namespace

std::string Place::str() const {
  return line > 0 ? cat(source, ":", line, ":", column) : source;
}

Node Node::null(Place place) {
  Node node;
  node.place_ = std::move(place);
  return node;
}

Node Node::scalar(std::string text, Place place, bool quoted) {
  Node node;
  node.kind_ = Kind::scalar;
  node.text_ = std::move(text);
  node.place_ = std::move(place);
  node.quoted_ = quoted;
  return node;
}

Node Node::list(std::vector<Node> items, Place place) {
  Node node;
  node.kind_ = Kind::list;
  node.items_ = std::move(items);
  node.place_ = std::move(place);
  return node;
}

Node Node::map(std::vector<std::pair<std::string, Node>> entries, Place place) {
  Node node;
  node.kind_ = Kind::map;
  node.entries_ = std::move(entries);
  node.place_ = std::move(place);
  return node;
}

const Node* Node::find(std::string_view path) const {
  const Node* at = this;
  while (!path.empty()) {
    const std::string_view key = path.substr(0, path.find('.'));
    path.remove_prefix(std::min(path.size(), key.size() + 1));
    const auto entry = std::find_if(at->entries_.begin(), at->entries_.end(),
                                    [&](const auto& e) { return e.first == key; });
    if (entry == at->entries_.end()) return nullptr;
    at = &entry->second;
  }
  return at;
}

void Node::set(std::string_view path, Node value) {
  Node* at = this;
  std::string_view done, rest = path;
  for (;;) {
    if (at->kind_ == Kind::scalar || at->kind_ == Kind::list) {
      throw ConfigError(cat(value.place().str(), ": ", path, " cannot be set: ", done, " is ",
                            at->describe(), " (", at->place_.str(), "), not a map"));
    }
    if (at->kind_ == Kind::null) {
      at->kind_ = Kind::map;
      if (at->place_.source.empty()) at->place_ = value.place_;
    }
    const std::string_view key = rest.substr(0, rest.find('.'));
    rest.remove_prefix(std::min(rest.size(), key.size() + 1));
    done = path.substr(0, static_cast<std::size_t>(key.data() + key.size() - path.data()));
    auto entry = std::find_if(at->entries_.begin(), at->entries_.end(),
                              [&](const auto& e) { return e.first == key; });
    if (entry == at->entries_.end()) {
      Node empty;
      empty.place_ = value.place_;
      entry = at->entries_.insert(at->entries_.end(), {std::string(key), std::move(empty)});
    }
    at = &entry->second;
    if (rest.empty()) break;
  }
  *at = std::move(value);
}

bool Node::as_bool(std::string_view key) const {
  const auto value = to_bool(plain_text(*this));
  if (!value) refuse(*this, key, "true or false");
  return *value;
}

std::int64_t Node::as_int(std::string_view key) const {
  const auto value = to_int(plain_text(*this));
  if (!value) refuse(*this, key, "an integer");
  return *value;
}

double Node::as_number(std::string_view key) const {
  const auto value = to_number(plain_text(*this));
  if (!value) refuse(*this, key, "a number");
  return *value;
}

std::string Node::as_string(std::string_view key) const {
  if (kind_ != Kind::scalar) refuse(*this, key, "text");
  return text_;
}

std::vector<std::string> Node::as_strings(std::string_view key) const {
  std::vector<std::string> out;
  for (const Node& item : as_list(*this, key, "a list of texts"))
    out.push_back(item.as_string(key));
  return out;
}

std::vector<double> Node::as_numbers(std::string_view key) const {
  std::vector<double> out;
  for (const Node& item : as_list(*this, key, "a list of numbers"))
    out.push_back(item.as_number(key));
  return out;
}

bool Node::get_bool(std::string_view key) const {
  return declared(*this, key).as_bool(key);
}
std::int64_t Node::get_int(std::string_view key) const {
  return declared(*this, key).as_int(key);
}
double Node::get_number(std::string_view key) const {
  return declared(*this, key).as_number(key);
}
std::string Node::get_string(std::string_view key) const {
  return declared(*this, key).as_string(key);
}
std::vector<std::string> Node::get_strings(std::string_view key) const {
  return declared(*this, key).as_strings(key);
}
std::vector<double> Node::get_numbers(std::string_view key) const {
  return declared(*this, key).as_numbers(key);
}
std::vector<std::pair<std::string, double>> Node::get_named_numbers(std::string_view key) const {
  const Node& node = declared(*this, key);
  if (node.kind() != Kind::map) refuse(node, key, "a map of numbers");
  std::vector<std::pair<std::string, double>> out;
  for (const auto& [name, value] : node.entries())
    out.emplace_back(name, value.as_number(cat(key, ".", name)));
  return out;
}

}  // namespace fovea::config
