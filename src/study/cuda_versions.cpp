// What gpu_state.h asks the CUDA libraries that are built in.

#include <array>

#include <cuda_runtime.h>

#include "kernels/cuda/gemm_plan.h"
#include "study/gpu_state.h"

namespace fovea::study {

std::string cublaslt_version() {
  return cuda::cublaslt_version();
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
