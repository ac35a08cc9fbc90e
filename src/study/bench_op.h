#pragma once
// `fovea bench op`: the kernels that move memory, and attention, at the sizes of GPT-2 124M.

#include <string>
#include <vector>

#include "core/stream.h"
#include "study/rates.h"

namespace fovea::study {

struct OpTime {
  std::string name;  // "layer_norm_backward"
  std::string sizes;
  double ms = 0;
  double bytes = 0;     // that have to be read and written; 0: products bound it
  double flops = 0;     // of products; 0: memory bounds it
  double floor_ms = 0;  // at the rates of this device
  GpuState gpu;         // during the last of them
};

std::vector<std::string> bench_op_names();
// All, or the one of that name: ConfigError with the nearest if there is none. bf16 and 65,536
// tokens on a GPU, fp32 and fewer on the CPU.
std::vector<OpTime> bench_ops(Stream& stream, const std::string& name, const Rates& rates);

std::string json_of(const std::vector<OpTime>& times);  // a list
std::string text_of(const std::vector<OpTime>& times);

}  // namespace fovea::study
