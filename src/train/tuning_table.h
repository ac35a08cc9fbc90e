#pragma once
// Which of cuBLASLt's candidates each product takes on one GPU: written by `fovea bench gemm
// --tune`, a text file of one line a product.

#include <cstdint>
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
// Throws ConfigError that says where for anything that tuning_yaml() does not write, IoError.
TuningTable read_tuning_table(const std::string& path);
// `now` with what `old` knows of other products than `timed`, in the order of their keys; `now`
// alone if the two are of different GPUs or versions.
TuningTable merged(const TuningTable& old, const TuningTable& now,
                   const std::vector<cuda::GemmKey>& timed);
// 16 hexadecimal digits over what the table changes: not its times, nor the order of its lines.
std::string fingerprint(const TuningTable& table);

// "13.1.0" of the cuBLASLt that runs, or "" in a build without CUDA.
std::string cublaslt_version();
// Throws ConfigError for a table of another GPU or library version, DeviceError if the device is no
// GPU.
void check_tuning(const TuningTable& table, const std::string& path, Device device);
// From now on the stream's products take the table's candidates. Throws as check_tuning(), and
// ConfigError for a candidate that cuBLASLt does not offer.
void apply_tuning(Stream& stream, const TuningTable& table, const std::string& path);
// The different products that the stream made so far, and how many of them a table knew.
struct ProductCount {
  std::int64_t all = 0, tuned = 0;
};
ProductCount count_products(Stream& stream);

}  // namespace fovea::train
