// fovea bench sparse: whether a sparse projection pays.

#include "study/bench_sparse.h"

#include <string>
#include <vector>

#include "command_line.h"
#include "core/cuda_runtime.h"
#include "core/isa.h"
#include "train/trainer.h"
#include "verbs/verbs.h"

namespace fovea::apps {

ExitCode bench_sparse(const Arguments& arguments, Output& out) {
  std::string device = "auto";
  CommandLine line("bench sparse",
                   "Times products with a fixed sparse matrix beside dense ones of the same sizes, "
                   "and says from which share of zeros they pay.");
  line.choice("--device", device, {"auto", "cpu", "cuda"}, "where to compute");
  if (!line.parse(arguments, out)) return ExitCode::ok;
  train::TrainConfig config;
  if (device == "cpu") config.device = train::DeviceChoice::cpu;
  if (device == "cuda") config.device = train::DeviceChoice::cuda;
  const Device on = train::device_of(config);
  Stream stream(on, train::threads_of({}));
  const std::vector<study::SparseTime> times = study::bench_sparse(stream);
  out.line(study::text_of(times));
  out.record().raw("products", study::json_of(times));
  out.record().add("device", on.is_cuda() ? cuda::device_info(on.index).name : cpu_name());
  return ExitCode::ok;
}

}  // namespace fovea::apps
