#pragma once
// Which BLAS computes, for records: the bits of products are promised per core.

#include <string>

namespace fovea {

// The name of the processor that OpenBLAS chose its kernels for: "Haswell", "SkylakeX".
std::string blas_core();

}  // namespace fovea
