// Stands in for this folder's cuda_ files in a build without CUDA.

#include "core/error.h"
#include "study/bench_gemm.h"
#include "study/gpu_state.h"

namespace fovea::study {

std::string cublaslt_version() {
  return {};
}

std::string pci_address(Device /*device*/) {
  return {};
}

std::vector<ProductTime> bench_products(const BenchShape& /*shape*/,
                                        const BenchSettings& /*settings*/,
                                        const ProductOptions& /*options*/) {
  throw DeviceError(
      "fovea bench gemm times cuBLASLt's products, and this build has no CUDA backend");
}

}  // namespace fovea::study
