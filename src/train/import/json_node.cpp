#include "train/import/json_node.h"

#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file.h"
#include "core/text.h"
#include "data/strict_json.h"

namespace fovea::train {

namespace {

using config::Node;
using nlohmann::ordered_json;

constexpr int kMaxDepth = 32;

Node node_of(const ordered_json& value, const config::Place& place) {
  switch (value.type()) {
    case ordered_json::value_t::object: {
      std::vector<std::pair<std::string, Node>> entries;
      for (const auto& [key, entry] : value.items())
        entries.emplace_back(key, node_of(entry, place));
      return Node::map(std::move(entries), place);
    }
    case ordered_json::value_t::array: {
      std::vector<Node> items;
      for (const ordered_json& item : value)
        items.push_back(node_of(item, place));
      return Node::list(std::move(items), place);
    }
    case ordered_json::value_t::string:
      return Node::scalar(value.get<std::string>(), place, true);
    case ordered_json::value_t::null:
      return Node::null(place);
    default:
      return Node::scalar(value.dump(), place);
  }
}

}  // namespace

Node read_json(const std::string& path, std::uint64_t most_bytes) {
  const InputFile file(path);
  if (file.size() > most_bytes) {
    throw IoError(cat(path, ": has ", file.size(), " bytes, more than the ", most_bytes,
                      " that such a file may have"));
  }
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  file.read_at(0, text.data(), text.size());
  if (text.find('\0') != std::string::npos) throw IoError(cat(path, ": has a NUL byte"));
  const auto root = data::parse_strict_json<ordered_json>(path, text, kMaxDepth);
  if (!root.is_object()) throw IoError(cat(path, ": is JSON, but not an object"));
  return node_of(root, {.source = path, .line = 0, .column = 0});
}

}  // namespace fovea::train
