#pragma once
// What a meta stream has counted. Plain enough for CUDA sources.

#include <cstdint>

namespace fovea {

struct CostCounter {
  double flops = 0;  // multiply-add = 2
  double bytes = 0;  // of every view handed to a kernel
  std::int64_t launches = 0;
};

}  // namespace fovea
