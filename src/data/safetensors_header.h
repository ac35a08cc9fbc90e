#pragma once
// The JSON header of a safetensors file, checked; private to data.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "data/safetensors.h"

namespace fovea::data {

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // in the order of their bytes
  std::map<std::string, std::string> metadata;
};

// Throws IoError("path: reason") if `json` is not a header that covers exactly `data_bytes` bytes.
SafetensorsHeader parse_safetensors_header(const std::string& path, std::string_view json,
                                           std::uint64_t data_bytes);
std::string make_safetensors_header(const std::string& path, std::span<const NamedTensor> tensors,
                                    const std::map<std::string, std::string>& metadata);

}  // namespace fovea::data
