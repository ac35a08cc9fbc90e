#include "core/cuda_runtime.h"
#include "core/error.h"
#include "core/text.h"
#include "train/tuning_table.h"

namespace fovea::train {

void apply_tuning(Stream& stream, const TuningTable& table, const std::string& path) {
  if (!stream.device().is_cuda()) {
    throw DeviceError(cat("train.gemm_table: ", path, " is of a GPU, but this run is on the ",
                          name_of(stream.device())));
  }
  const std::string gpu = cuda::device_info(stream.device().index).name;
  const std::string version = cuda::cublaslt_version();
  if (table.gpu != gpu || table.cublaslt != version) {
    throw ConfigError(cat("train.gemm_table: ", path, " is of ", table.gpu, " with cuBLASLt ",
                          table.cublaslt, ", but this is ", gpu, " with ", version,
                          "; fovea bench gemm --tune writes one for it"));
  }
  for (const TunedProduct& product : table.products)
    cuda::blas_state(stream.ref()).tune(product.key, product.candidate);
}

}  // namespace fovea::train
