#include "core/cuda_queue.h"
#include "core/cuda_runtime.h"
#include "core/error.h"
#include "core/text.h"
#include "train/tuning_table.h"

namespace fovea::train {

std::string cublaslt_version() {
  return cuda::cublaslt_version();
}

void check_tuning(const TuningTable& table, const std::string& path, Device device) {
  const std::string gpu = cuda::device_info(device.index).name;
  const std::string version = cuda::cublaslt_version();
  if (table.gpu == gpu && table.cublaslt == version) return;
  throw ConfigError(cat("train.gemm_table: ", path, " is of ", table.gpu, " with cuBLASLt ",
                        table.cublaslt, ", but this is ", gpu, " with ", version,
                        "; fovea bench gemm --tune writes one for it"));
}

void apply_tuning(Stream& stream, const TuningTable& table, const std::string& path) {
  check_tuning(table, path, stream.device());
  cuda::BlasState& blas = cuda::blas_state(stream.ref());
  for (const TunedProduct& product : table.products) {
    try {
      blas.tune(product.key, product.candidate);
    } catch (const DeviceError& e) {
      throw ConfigError(cat("train.gemm_table: ", path, ": candidate ", product.candidate,
                            " does not exist: ", e.what(),
                            "; fovea bench gemm --tune writes another table"));
    }
  }
}

ProductCount count_products(Stream& stream) {
  ProductCount out;
  if (!stream.device().is_cuda()) return out;
  const auto& queue = *static_cast<const CudaQueue*>(stream.ref().native);
  if (queue.blas == nullptr) return out;
  const auto& blas = *static_cast<const cuda::BlasState*>(queue.blas);
  for (const cuda::BlasState::Use& use : blas.uses()) {
    ++out.all;
    if (blas.is_tuned(use.key)) ++out.tuned;
  }
  return out;
}

}  // namespace fovea::train
