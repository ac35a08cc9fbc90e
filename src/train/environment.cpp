#include "train/environment.h"

#include <vector>

#include "core/cuda_runtime.h"
#include "core/isa.h"
#include "core/text.h"
#include "kernels/blas_info.h"
#include "train/json_text.h"
#include "train/tuning_table.h"

namespace fovea::train {

Arithmetic arithmetic(Device device, Precision precision) {
  if (device.is_cuda()) {
    const cuda::DeviceInfo info = cuda::device_info(device.index);
    return {cat("sm_", info.major, info.minor, " ", info.name),
            cat("cuBLASLt ", cublaslt_version()), name_of(precision)};
  }
  return {name_of(isa()), blas_core(), name_of(precision)};
}

Arithmetic arithmetic(Device device, const TrainConfig& config) {
  Arithmetic out = arithmetic(device, config.precision);
  if (device.is_cuda() && !config.gemm_table.empty())
    out.blas_core += cat(", tuned ", fingerprint(read_tuning_table(config.gemm_table)));
  return out;
}

std::string environment_json(Device device, const TrainConfig& config, int threads,
                             std::int64_t from_step, int ranks) {
  const Arithmetic now = arithmetic(device, config);
  return JsonObject()
      .add("fovea", kVersion)
      .add("compiler", "gcc " __VERSION__)
      .add("isa", now.isa)
      .add("blas_core", now.blas_core)
      .add("precision", now.precision)
      .add("device", name_of(device))
      .add("cpu", cpu_name())
      .add("threads", threads)
      .add("ranks", ranks)
      .add("from_step", from_step)
      .lines();
}

std::string difference(const Arithmetic& then, const Arithmetic& now) {
  std::vector<std::string> out;
  const auto compare = [&](const char* what, const std::string& a, const std::string& b) {
    if (a != b) out.push_back(cat(what, " ", a, " -> ", b));
  };
  compare("isa", then.isa, now.isa);
  compare("BLAS core", then.blas_core, now.blas_core);
  compare("precision", then.precision, now.precision);
  return join(out, ", ");
}

}  // namespace fovea::train
