// Stands in for cuda_tuning.cpp in a build without CUDA.

#include "core/error.h"
#include "core/text.h"
#include "train/tuning_table.h"

namespace fovea::train {

std::string cublaslt_version() {
  return {};
}

void check_tuning(const TuningTable& /*table*/, const std::string& path, Device device) {
  throw DeviceError(
      cat("train.gemm_table: ", path, " is of a GPU, but this run is on the ", name_of(device)));
}

void apply_tuning(Stream& stream, const TuningTable& table, const std::string& path) {
  check_tuning(table, path, stream.device());
}

ProductCount count_products(Stream& /*stream*/) {
  return {};
}

}  // namespace fovea::train
