#include "train/environment.h"

#include <vector>

#include "core/isa.h"
#include "core/text.h"
#include "kernels/blas_info.h"
#include "train/json_text.h"

namespace fovea::train {

Arithmetic arithmetic(Precision precision) {
  return {name_of(isa()), blas_core(), name_of(precision)};
}

std::string environment_json(Precision precision, int threads, std::int64_t from_step) {
  const Arithmetic now = arithmetic(precision);
  return JsonObject()
      .add("fovea", kVersion)
      .add("compiler", "gcc " __VERSION__)
      .add("isa", now.isa)
      .add("blas_core", now.blas_core)
      .add("precision", now.precision)
      .add("device", "cpu")
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
