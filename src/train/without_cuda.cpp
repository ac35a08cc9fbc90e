// Stands in for cuda_tuning.cpp in a build without CUDA.

#include "core/error.h"
#include "core/text.h"
#include "train/tuning_table.h"

namespace fovea::train {

void apply_tuning(Stream& stream, const TuningTable& /*table*/, const std::string& path) {
  throw DeviceError(cat("train.gemm_table: ", path, " is of a GPU, but this run is on the ",
                        name_of(stream.device())));
}

}  // namespace fovea::train
