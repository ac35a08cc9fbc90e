#include "train/environment.h"

#include <vector>

#include "core/cuda_runtime.h"
#include "core/isa.h"
#include "core/text.h"
#include "kernels/blas_info.h"
#include "train/json_text.h"

namespace fovea::train {

Arithmetic arithmetic(Device device, Precision precision) {
  if (device.is_cuda()) {
    const cuda::DeviceInfo info = cuda::device_info(device.index);
    return {cat("sm_", info.major, info.minor, " ", info.name),
            cat("cuBLASLt of CUDA ", info.runtime / 1000, ".", info.runtime % 1000 / 10),
            name_of(precision)};
  }
  return {name_of(isa()), blas_core(), name_of(precision)};
}

std::string environment_json(Device device, Precision precision, int threads,
                             std::int64_t from_step) {
  const Arithmetic now = arithmetic(device, precision);
  return JsonObject()
      .add("fovea", kVersion)
      .add("compiler", "gcc " __VERSION__)
      .add("isa", now.isa)
      .add("blas_core", now.blas_core)
      .add("precision", now.precision)
      .add("device", name_of(device))
      .add("cpu", cpu_name())
      .add("threads", threads)
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
