#pragma once
// Named tensors in files of other programs, each read when asked for.

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor.h"

namespace fovea::train {

struct ForeignTensor {
  std::vector<std::int64_t> shape;
  DType dtype = DType::f32;
  std::function<Tensor()> read;  // a CPU tensor of its own; throws IoError
};

using ForeignTensors = std::map<std::string, ForeignTensor, std::less<>>;

// Those of one safetensors file. Throws IoError.
ForeignTensors open_safetensors(const std::string& path);
// Those of all files that an index (model.safetensors.index.json) names, which lie beside it.
// Throws IoError for an index that is no such thing, a tensor that is not in the file the index
// says, and one that is in two.
ForeignTensors open_sharded_safetensors(const std::string& index);

// "[2,3]".
std::string shape_text(const std::vector<std::int64_t>& shape);
// A name out of a file, safe for a terminal.
std::string name_text(std::string_view name);

}  // namespace fovea::train
