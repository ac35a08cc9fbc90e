#include "train/flat_settings.h"

#include "core/text.h"

namespace fovea::train {

namespace {

void flatten(const config::Node& node, const std::string& path,
             std::map<std::string, std::string>& into) {
  if (node.kind() != config::Node::Kind::map) {
    into[path] = node.json();
    return;
  }
  for (const auto& [key, value] : node.entries())
    flatten(value, path.empty() ? key : cat(path, ".", key), into);
}

}  // namespace

std::map<std::string, std::string> flat_settings(const config::Node& settings) {
  std::map<std::string, std::string> out;
  flatten(settings, "", out);
  return out;
}

}  // namespace fovea::train
