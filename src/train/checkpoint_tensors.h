#pragma once
// The tensors of model.safetensors: parameters and buffers under their paths.

#include <string>
#include <vector>

#include "core/stream.h"
#include "data/safetensors.h"
#include "nn/module.h"

namespace fovea::train {

// Masters (state dtype), then buffers; the model's own memory.
std::vector<data::NamedTensor> model_tensors(nn::Module& model);
// Copies them from the file, other float dtypes converted. Throws CheckpointError that lists every
// missing, extra and mis-shaped tensor, and leaves the model as it was.
void load_model_tensors(Stream& stream, nn::Module& model, const data::SafetensorsFile& file);

// How the file's tensor differs from the one it is for in shape or kind, as a line of such a list;
// "" if it fits.
std::string misfit(const data::SafetensorsEntry& entry, const Shape& shape, DType dtype);

}  // namespace fovea::train
