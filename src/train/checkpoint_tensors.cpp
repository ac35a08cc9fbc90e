#include "train/checkpoint_tensors.h"

#include <map>
#include <string_view>

#include "core/error.h"
#include "core/text.h"

namespace fovea::train {

std::vector<data::NamedTensor> model_tensors(nn::Module& model) {
  std::vector<data::NamedTensor> out;
  model.each_parameter([&](const std::string& path, nn::Parameter& parameter) {
    out.push_back({path, parameter.master});
  });
  model.each_buffer([&](const std::string& path, nn::Buffer& buffer) {
    out.push_back({path, buffer.value});
  });
  return out;
}

std::string misfit(const data::SafetensorsEntry& entry, const Shape& shape, DType dtype) {
  Shape found;
  for (const std::int64_t size : entry.shape) {
    if (found.rank() < kMaxRank) found.push_back(size);
  }
  if (!(found == shape) || entry.shape.size() > static_cast<std::size_t>(kMaxRank)) {
    return cat("\n  mis-shaped  ", entry.name, " ", found.str(), ", but the model has ",
               shape.str());
  }
  if (is_float(entry.dtype) == is_float(dtype)) return {};
  return cat("\n  mis-typed   ", entry.name, " ", name_of(entry.dtype), ", but the model has ",
             name_of(dtype));
}

void load_model_tensors(Stream& stream, nn::Module& model, const data::SafetensorsFile& file) {
  const std::vector<data::NamedTensor> into = model_tensors(model);
  std::string wrong;
  std::map<std::string_view, const Tensor*> wanted;
  for (const auto& [name, tensor] : into) {
    wanted.emplace(name, &tensor);
    const data::SafetensorsEntry* entry = file.find(name);
    wrong += entry == nullptr ? cat("\n  missing     ", name, " ", tensor.shape().str())
                              : misfit(*entry, tensor.shape(), tensor.dtype());
  }
  for (const data::SafetensorsEntry& entry : file.entries()) {
    if (!wanted.contains(entry.name)) wrong += cat("\n  extra       ", entry.name);
  }
  if (!wrong.empty()) throw CheckpointError(cat(file.path(), ": is of another model:", wrong));
  for (const auto& [name, tensor] : into) {
    if (!tensor.device().is_meta()) transfer(tensor, file.read(name), stream);
  }
}

}  // namespace fovea::train
