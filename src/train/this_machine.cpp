#include "train/this_machine.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "core/cuda_runtime.h"
#include "core/error.h"
#include "core/isa.h"
#include "core/log.h"
#include "core/text.h"
#include "train/trainer.h"
#include "train/tuning_table.h"

namespace fovea::train {

namespace {

void leave_out_misfit(TrainConfig& config, Device device) {
  const std::string path = config.gemm_table;
  if (!device.is_cuda()) {
    config.gemm_table.clear();
    return;
  }
  try {
    check_tuning(read_tuning_table(path), path, device);
  } catch (const Error& e) {
    log::warn(cat(e.what(),
                  "; products take cuBLASLt's first answer, so bits may differ from "
                  "those of the run"));
    config.gemm_table.clear();
  }
}

}  // namespace

TrainConfig usable_here(TrainConfig trained, const AskedNow& asked) {
  TrainConfig out = std::move(trained);
  if (out.device == DeviceChoice::cuda && !asked.device) {
    out.device = DeviceChoice::automatic;
    if (const std::string why = why_not_cuda(out); !why.empty())
      log::warn(cat("the model was trained with train.device: cuda; computing on the cpu: ", why));
  }
  const Device device = device_of(out);
  if (out.precision == Precision::tf32 && !device.is_cuda()) {
    if (asked.precision) {
      throw ConfigError("train.precision is tf32, but the CPU has no such arithmetic: use fp32");
    }
    log::warn(
        "the model was trained with train.precision: tf32, which the cpu does not have; computing "
        "in fp32");
    out.precision = Precision::fp32;
  }
  if (!out.gemm_table.empty() && !asked.gemm_table) leave_out_misfit(out, device);
  return out;
}

void prepare_products(Stream& stream, const TrainConfig& config) {
  stream.set_tf32(config.precision == Precision::tf32);
  if (config.gemm_table.empty()) return;
  const TuningTable table = read_tuning_table(config.gemm_table);
  if (stream.device().is_cuda()) return apply_tuning(stream, table, config.gemm_table);
  if (stream.device().is_cpu()) {
    log::warn(
        cat("train.gemm_table: ", config.gemm_table, " is of a GPU and does nothing on the cpu"));
  }
}

std::string why_not_cuda(const TrainConfig& config) {
  if (config.device != DeviceChoice::automatic) return {};
  const char* const set = std::getenv("FOVEA_DEVICE");
  const std::string_view asked = set != nullptr ? set : "";
  if (!asked.empty() && asked != "cpu" && asked != "auto") {
    throw ConfigError(
        cat("the environment variable FOVEA_DEVICE is '", asked, "', but must be cpu or auto"));
  }
  if (config.precision == Precision::fp64) return "fp64 runs on the cpu only";
  if (asked == "cpu") return "FOVEA_DEVICE is cpu";
  return cuda::device_count() > 0 ? cuda::why_too_old(0) : cuda::why_none();
}

Device device_of(const TrainConfig& config, int local_rank) {
  const int devices = cuda::device_count();
  const Device own{Device::Kind::cuda,
                   static_cast<std::int16_t>(devices > 0 ? local_rank % devices : 0)};
  switch (config.device) {
    case DeviceChoice::cpu:
      return kCpu;
    case DeviceChoice::cuda: {
      const std::string why = devices > 0 ? cuda::why_too_old(own.index) : cuda::why_none();
      if (why.empty()) return own;
      throw DeviceError(cat("a GPU is asked for (train.device or --device is cuda), but ", why,
                            "; auto and cpu run without one"));
    }
    case DeviceChoice::automatic:
      break;
  }
  return why_not_cuda(config).empty() ? own : kCpu;
}

int threads_of(const TrainConfig& config, int local_size) {
  return config.threads > 0 ? config.threads : std::max(1, cpu_count() / local_size);
}

}  // namespace fovea::train
