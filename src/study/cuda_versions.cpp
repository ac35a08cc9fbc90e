// What gpu_state.h asks the CUDA libraries that are built in.

#include <array>

#include <cublasLt.h>
#include <cuda_runtime.h>

#include "core/text.h"
#include "study/gpu_state.h"

namespace fovea::study {

// 130100 is 13.1.0.
std::string cublaslt_version() {
  const std::size_t version = cublasLtGetVersion();
  return cat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

std::string pci_address(Device device) {
  std::array<char, 32> text{};
  if (cudaDeviceGetPCIBusId(text.data(), static_cast<int>(text.size()), device.index) !=
      cudaSuccess) {
    cudaGetLastError();
    return {};
  }
  return text.data();
}

}  // namespace fovea::study
