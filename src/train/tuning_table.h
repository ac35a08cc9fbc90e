#pragma once
// Which of cuBLASLt's candidates each product takes on one GPU: written by `fovea bench gemm
// --tune`, a text file of one line a product.

#include <string>
#include <vector>

#include "core/stream.h"
#include "kernels/cuda/gemm_plan.h"

namespace fovea::train {

struct TunedProduct {
  cuda::GemmKey key;  // GemmKey::for_tuning()
  int candidate = 0;
  double ms = 0, first_ms = 0;  // of it and of candidate 0, sustained
};

struct TuningTable {
  std::string gpu;       // "NVIDIA H200"
  std::string cublaslt;  // "13.1.0": another version may number its candidates otherwise
  std::vector<TunedProduct> products;
};

// "nvidia_h200.yaml" of "NVIDIA H200".
std::string tuning_file_name(const std::string& gpu);
std::string tuning_yaml(const TuningTable& table);
// Throws ConfigError that says where, IoError.
TuningTable read_tuning_table(const std::string& path);
// From now on the stream's products take the table's candidates. Throws ConfigError for a table of
// another GPU or library version, DeviceError on a stream that is no CUDA device's.
void apply_tuning(Stream& stream, const TuningTable& table, const std::string& path);

}  // namespace fovea::train
