#include "config/option.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>
#include <tuple>

#include "config/scalar.h"
#include "config/yaml.h"
#include "core/error.h"
#include "core/text.h"

namespace fovea::config {

namespace {

std::string joined_key(std::string_view prefix, std::string_view key) {
  return prefix.empty() || key.empty() ? cat(prefix, key) : cat(prefix, ".", key);
}

// "[1, 64]", "(0, 1]", "[1, inf)"; a mistake in one is ours.
struct Range {
  double low = -std::numeric_limits<double>::infinity(),
         high = std::numeric_limits<double>::infinity();
  bool low_open = false, high_open = false;

  explicit Range(std::string_view text) {
    text = text.substr(0, text.find(" | "));
    if (text.empty()) return;
    const std::size_t comma = text.find(", ");
    FOVEA_ASSERT(comma != std::string_view::npos && text.size() > comma + 3);
    low_open = text.front() == '(';
    high_open = text.back() == ')';
    low = bound(text.substr(1, comma - 1));
    high = bound(text.substr(comma + 2, text.size() - comma - 3));
  }
  bool contains(double value) const {
    return (low_open ? value > low : value >= low) && (high_open ? value < high : value <= high);
  }

 private:
  static double bound(std::string_view text) {
    double value = 0;
    const auto [end, error] =
        std::from_chars(text.data(), text.data() + text.size(), value);  // reads inf too
    FOVEA_ASSERT(error == std::errc() && end == text.data() + text.size());
    return value;
  }
};

// The words of a choice, or behind an integer's bounds.
std::vector<std::string> choices(std::string_view range) {
  if (range.starts_with('[') || range.starts_with('('))
    range.remove_prefix(std::min(range.size(), range.find_first_of("])") + 4));
  std::vector<std::string> out;
  while (!range.empty()) {
    const std::string_view word = range.substr(0, range.find(" | "));
    out.emplace_back(word);
    range.remove_prefix(std::min(range.size(), word.size() + 3));
  }
  return out;
}

std::string must_be(const Option& option) {
  if (option.type == Type::boolean) return "true or false";
  if (option.type == Type::choice) return std::string(option.range);
  const std::string type = type_text(option);
  return cat(type.starts_with("i") ? "an " : "a ", type);
}

// A scalar in its canonical spelling, or nothing if it is not what the option wants.
std::optional<Node> canonical(const Option& option, Type type, const Node& node) {
  if (node.kind() != Node::Kind::scalar) return std::nullopt;
  const auto plain = [&](std::string text) { return Node::scalar(std::move(text), node.place()); };
  const std::string& text = node.text();
  if (type == Type::string) return Node::scalar(text, node.place(), needs_quotes(text));
  if (type == Type::choice) {
    const std::vector<std::string> words = choices(option.range);
    if (std::find(words.begin(), words.end(), text) == words.end()) return std::nullopt;
    return plain(text);
  }
  if (node.quoted()) return std::nullopt;  // "4" is text
  if (type == Type::boolean) {
    const auto value = to_bool(text);
    return value ? std::optional(plain(*value ? "true" : "false")) : std::nullopt;
  }
  if (type == Type::integer) {
    const std::vector<std::string> words = choices(option.range);
    if (std::find(words.begin(), words.end(), text) != words.end()) return plain(text);
    const auto value = to_int(text);
    return value && Range(option.range).contains(static_cast<double>(*value))
               ? std::optional(plain(cat(*value)))
               : std::nullopt;
  }
  const auto value = type == Type::duration ? to_seconds(text) : to_number(text);
  return value && Range(option.range).contains(*value) ? std::optional(plain(number_text(*value)))
                                                       : std::nullopt;
}

// A map's entries in the order of their keys: which came first means nothing.
std::optional<Node> canonical_map(const Option& option, const Node& node) {
  if (node.kind() != Node::Kind::map) return std::nullopt;
  std::vector<std::pair<std::string, Node>> entries;
  for (const auto& [name, given] : node.entries()) {
    std::optional<Node> value = canonical(option, Type::number, given);
    if (!value) return std::nullopt;
    value->set_key_place(given.key_place());
    entries.emplace_back(name, std::move(*value));
  }
  std::sort(entries.begin(), entries.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  return Node::map(std::move(entries), node.place());
}

std::optional<Node> canonical(const Option& option, const Node& node) {
  if (option.type == Type::any) return node;
  if (option.type == Type::named_numbers) return canonical_map(option, node);
  if (option.type != Type::strings && option.type != Type::numbers)
    return canonical(option, option.type, node);
  const Type each = option.type == Type::strings ? Type::string : Type::number;
  if (node.kind() == Node::Kind::map || node.is_null()) return std::nullopt;
  std::vector<Node> items;
  for (const Node& item :
       node.kind() == Node::Kind::list ? node.items() : std::vector<Node>{node}) {
    std::optional<Node> value = canonical(option, each, item);
    if (!value) return std::nullopt;
    items.push_back(std::move(*value));
  }
  return Node::list(std::move(items), node.place());
}

// The first entry of a list or map that is at fault, and how it is called behind the option's key;
// nothing: the whole is.
struct Entry {
  const Node* node;
  std::string name;
};
std::optional<Entry> faulty_entry(const Option& each, const Node& node) {
  for (std::size_t i = 0; i < node.items().size(); ++i) {
    if (!canonical(each, node.items()[i])) return Entry{&node.items()[i], cat("[", i, "]")};
  }
  for (const auto& [name, value] : node.entries()) {
    if (!canonical(each, value)) return Entry{&value, cat(".", name)};
  }
  return std::nullopt;
}

std::string complaint(const Option& option, std::string_view key, const Node& node) {
  std::string text = cat(key, " is ", node.describe(), ", but must be ", must_be(option));
  if (node.kind() != Node::Kind::scalar) return text;
  if (option.type == Type::choice) {
    const std::string near = nearest(node.text(), choices(option.range));
    if (!near.empty()) text += cat("; did you mean ", near, "?");
  } else if (node.quoted() && !node.text().empty()) {
    text += "; leave out the quotes";
  } else if (option.type != Type::boolean && node.text().size() > 1 && node.text().front() == '0' &&
             node.text()[1] >= '0' && node.text()[1] <= '9' &&
             to_number(std::string_view(node.text()).substr(node.text().find_first_not_of('0')))) {
    text += "; readers disagree on leading zeros, so leave them out";
  }
  return text;
}

class Completion {
 public:
  Completion(std::span<const Option> options, std::string_view prefix, Findings& findings)
      : options_(options), prefix_(prefix), findings_(findings) {}

  // Reports unknown keys and sections that are no maps, in `node`, which stands at `path`.
  void check_keys(const Node& node, const std::string& path) {
    if (node.is_null()) return;
    if (node.kind() != Node::Kind::map) {
      const std::string full = joined_key(prefix_, path);
      findings_.add(node.place(), full,
                    cat(full.empty() ? "the configuration" : full, " is ", node.describe(),
                        ", but must be a map"));
      return;
    }
    for (const auto& [key, value] : node.entries()) {
      const std::string full = joined_key(path, key);
      if (key.find('.') != std::string::npos) {
        findings_.add(value.key_place(), joined_key(prefix_, full),
                      cat("key '", key, "' holds a dot; write maps inside maps instead"));
      } else if (is_section(full)) {
        check_keys(value, full);
      } else if (is_leaf(full)) {
        continue;
      } else {
        findings_.add(value.key_place(), joined_key(prefix_, full), unknown(full, path));
      }
    }
  }

  Node values(const Node& node) {
    Node out = Node::map({}, node.place());
    for (const Option& option : options_) {
      const Node* given = node.find(option.key);
      std::optional<Node> value;
      if (given != nullptr && !given->is_null()) {
        value = canonical(option, *given);
        const std::string key = joined_key(prefix_, option.key);
        if (!value) complain(option, key, *given);
        if (value) value->set_key_place(given->key_place());
        if (value && option.type == Type::named_numbers && value->entries().empty()) value.reset();
      }
      if (!value && !option.default_value.empty()) {
        value = canonical(option, default_of(option));
        FOVEA_ASSERT(value.has_value());
      }
      if (value) out.set(option.key, std::move(*value));
    }
    return out;
  }

 private:
  void complain(const Option& option, const std::string& key, const Node& node) {
    Option each = option;
    each.type = option.type == Type::strings ? Type::string : Type::number;
    const bool list = option.type == Type::strings || option.type == Type::numbers,
               right = (list && node.kind() == Node::Kind::list) ||
                       (option.type == Type::named_numbers && node.kind() == Node::Kind::map);
    if (const auto at = right ? faulty_entry(each, node) : std::nullopt) {
      findings_.add(at->node->place(), key, complaint(each, cat(key, at->name), *at->node));
    } else {
      findings_.add(node.place(), key, complaint(option, key, node));
    }
  }
  static Node default_of(const Option& option) {
    const Node parsed = parse(option.default_value, "default");
    const Place place{.source = "default", .line = 0, .column = 0};
    if (parsed.kind() == Node::Kind::list) return Node::list(parsed.items(), place);
    if (parsed.kind() == Node::Kind::map) return Node::map(parsed.entries(), place);
    return Node::scalar(parsed.text(), place, parsed.quoted());
  }
  bool is_leaf(std::string_view key) const {
    return std::any_of(options_.begin(), options_.end(),
                       [&](const Option& option) { return option.key == key; });
  }
  bool is_section(const std::string& key) const {
    return std::any_of(options_.begin(), options_.end(),
                       [&](const Option& option) { return option.key.starts_with(key + "."); });
  }
  // The right name in the wrong section first; then a misspelling; else what there is.
  std::string unknown(const std::string& key, const std::string& section) const {
    std::vector<std::string> all, siblings;
    const auto add_once = [](std::vector<std::string>& to, std::string word) {
      if (std::find(to.begin(), to.end(), word) == to.end()) to.push_back(std::move(word));
    };
    const std::string leaf =
        key.substr(key.rfind('.') == std::string::npos ? 0 : key.rfind('.') + 1);
    std::string same_leaf;
    for (const Option& option : options_) {
      const std::string declared(option.key);
      for (std::size_t dot = declared.find('.'); dot != std::string::npos;
           dot = declared.find('.', dot + 1)) {
        add_once(all, declared.substr(0, dot));
      }
      add_once(all, declared);
      if (declared == leaf || declared.ends_with("." + leaf)) {
        const bool below = declared.starts_with(section + ".");
        if (same_leaf.empty() || below) same_leaf = declared;
      }
      if (section.empty() || declared.starts_with(section + ".")) {
        const std::size_t from = section.empty() ? 0 : section.size() + 1;
        add_once(siblings, declared.substr(from, declared.find('.', from) - from));
      }
    }
    std::string near = same_leaf;
    if (near.empty()) near = nearest(leaf, siblings);
    if (!near.empty() && near != same_leaf) near = joined_key(section, near);
    if (near.empty()) near = nearest(key, all);
    const std::string full = joined_key(prefix_, key);
    if (!near.empty())
      return cat("unknown key ", full, "; did you mean ", joined_key(prefix_, near), "?");
    const std::string place = joined_key(prefix_, section);
    if (options_.empty()) return cat("unknown key ", full, "; ", place, " has no options");
    return cat("unknown key ", full, "; ", place.empty() ? "there are" : place + " has", " ",
               join(siblings, ", "));
  }

  std::span<const Option> options_;
  std::string_view prefix_;
  Findings& findings_;
};

}  // namespace

Node complete(const Node& node, std::span<const Option> options, std::string_view prefix) {
  Findings findings;
  Node out = complete(node, options, prefix, findings);
  findings.raise();
  return out;
}

Node complete(const Node& node, std::span<const Option> options, std::string_view prefix,
              Findings& findings) {
  Completion completion(options, prefix, findings);
  completion.check_keys(node, "");
  return completion.values(node);
}

}  // namespace fovea::config
