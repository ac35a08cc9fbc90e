#pragma once
// What a device reaches at best: the limits beside which times are printed.

#include <optional>
#include <string>

#include "core/stream.h"
#include "core/tensor.h"
#include "study/gpu_state.h"

namespace fovea::study {

struct Rates {
  double copy = 0;     // bytes a second, read and written, of a large copy
  double product = 0;  // FLOPs a second of a large product: bf16 on a GPU, fp32 elsewhere
  GpuState gpu = {};   // during the product
};

// Takes well under a second.
Rates measure_rates(Stream& stream);

// The same on a stream of its own; nothing, and why, where the device cannot be used or its memory
// is full.
std::optional<Rates> rates_now(Device device, std::string& why);

// Uniform in [-bound, bound), on the stream's device: a block of random numbers, repeated.
Tensor random_tensor(Stream& stream, Shape shape, DType dtype, double bound = 1);
// Whole numbers in [0, below), of i32.
Tensor random_ids(Stream& stream, Shape shape, std::int64_t below);

// 16-bit products with dense factors that the maker promises, FLOPs a second, as published
// utilisations count; 0 for a device that is not known.
double promised_rate(const std::string& name);

}  // namespace fovea::study
