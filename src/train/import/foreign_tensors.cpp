#include "train/import/foreign_tensors.h"

#include <filesystem>
#include <memory>

#include "core/error.h"
#include "core/text.h"
#include "data/quote.h"
#include "data/safetensors.h"
#include "train/import/json_node.h"

namespace fovea::train {

ForeignTensors open_safetensors(const std::string& path) {
  const auto file = std::make_shared<const data::SafetensorsFile>(path);
  ForeignTensors out;
  for (const data::SafetensorsEntry& entry : file->entries()) {
    out.emplace(entry.name, ForeignTensor{entry.shape, entry.dtype,
                                          [file, name = entry.name] { return file->read(name); }});
  }
  return out;
}

ForeignTensors open_sharded_safetensors(const std::string& index) {
  constexpr std::uint64_t kMostBytes = 64 << 20;  // 10^5 tensors take about 10 MB
  const config::Node root = read_json(index, kMostBytes);
  const config::Node* map = root.find("weight_map");
  if (map == nullptr || map->kind() != config::Node::Kind::map) {
    throw IoError(cat(index, ": has no weight_map"));
  }
  std::map<std::string, ForeignTensors> files;
  for (const auto& [name, file] : map->entries()) {
    // Only files beside the index: it must not reach elsewhere on the machine.
    if (file.text().find('/') == std::string::npos && file.text().ends_with(".safetensors")) {
      files[file.text()];
      continue;
    }
    throw IoError(cat(index, ": tensor ", data::quote(name), " is in ", data::quote(file.text()),
                      ", but that must be a .safetensors file beside the index"));
  }
  ForeignTensors out;
  for (auto& [name, tensors] : files) {
    const std::string path = (std::filesystem::path(index).parent_path() / name).string();
    tensors = open_safetensors(path);
    for (const auto& tensor : tensors) {
      if (out.insert(tensor).second) continue;
      throw IoError(cat(path, ": tensor ", data::quote(tensor.first),
                        " is in another file of the index too"));
    }
  }
  for (const auto& [name, file] : map->entries()) {
    if (files[file.text()].contains(name)) continue;
    throw IoError(cat(index, ": tensor ", data::quote(name), " is not in ",
                      data::quote(file.text()), " as it says"));
  }
  return out;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string out = "[";
  for (const std::int64_t size : shape)
    out += cat(out.size() > 1 ? "," : "", size);
  return out + "]";
}

std::string name_text(std::string_view name) {
  const std::string quoted = data::quote(name, 200);
  return quoted.substr(1, quoted.size() - 2);
}

}  // namespace fovea::train
