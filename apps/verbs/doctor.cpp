// fovea doctor: what this machine has, and what is missing.

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include <CLI/Version.hpp>
#include <cblas.h>
#include <fmt/core.h>
#include <gloo/config.h>
#include <nlohmann/json.hpp>
#include <spdlog/version.h>
#include <xxhash.h>

#include "command_line.h"
#include "core/cuda_runtime.h"
#include "core/isa.h"
#include "core/text.h"
#include "kernels/blas_info.h"
#include "study/gpu_state.h"
#include "study/rates.h"
#include "train/environment.h"
#include "train/kernel_trace.h"
#include "verbs/verbs.h"

namespace fovea::apps {
namespace {

std::string dotted(int major, int minor, int patch) {
  return cat(major, ".", minor, ".", patch);
}

// A value of /proc/meminfo in bytes; 0 if there is none.
double memory_bytes(std::string_view key) {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(cat(key, ":"), 0) == 0) return std::stod(line.substr(key.size() + 1)) * 1024;
  }
  return 0;
}

std::string disk() {
  const std::filesystem::space_info space = std::filesystem::space(".");
  return cat(human_bytes(static_cast<double>(space.available)), " free here");
}

// Some OpenBLAS builds choose kernels that compute wrong results on processors younger than they
// are. Whole numbers are exact in f32, so a right product is equal to the bit.
bool blas_is_right(int size) {
  const auto n = static_cast<std::size_t>(size);
  std::vector<float> a(n * n), b(n * n), c(n * n);
  for (std::size_t i = 0; i < n * n; ++i) {
    a[i] = static_cast<float>(static_cast<int>(i * 7 % 11) - 5);
    b[i] = static_cast<float>(static_cast<int>(i * 5 % 13) - 6);
  }
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, size, size, size, 1.0f, a.data(), size,
              b.data(), size, 0.0f, c.data(), size);
  for (std::size_t row = 0; row < n; ++row) {
    for (std::size_t column = 0; column < n; ++column) {
      float sum = 0;
      for (std::size_t k = 0; k < n; ++k)
        sum += a[row * n + k] * b[k * n + column];
      if (sum != c[row * n + column]) return false;
    }
  }
  return true;
}

// "OpenBLAS 0.3.21" of the library's longer description.
std::string blas_version() {
  const std::string text = openblas_get_config();
  return text.substr(0, text.find(' ', text.find(' ') + 1));
}

std::string versions() {
  const unsigned xxhash = XXH_versionNumber();
  return cat(
      blas_version(), ", yaml-cpp ", FOVEA_YAML_VERSION, ", spdlog ",
      dotted(SPDLOG_VER_MAJOR, SPDLOG_VER_MINOR, SPDLOG_VER_PATCH), ", fmt ",
      dotted(FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100), ", nlohmann-json ",
      dotted(NLOHMANN_JSON_VERSION_MAJOR, NLOHMANN_JSON_VERSION_MINOR, NLOHMANN_JSON_VERSION_PATCH),
      ", xxHash ",
      dotted(static_cast<int>(xxhash / 10000), static_cast<int>(xxhash / 100 % 100),
             static_cast<int>(xxhash % 100)),
      ", Gloo ", dotted(GLOO_VERSION_MAJOR, GLOO_VERSION_MINOR, GLOO_VERSION_PATCH), ", CLI11 ",
      CLI11_VERSION);
}

// "13.1" of 13010.
std::string cuda_version(int number) {
  return cat(number / 1000, ".", number % 1000 / 10);
}

// Copying and multiplying takes memory of the GPU, which others may hold.
template <class Say>
void say_rates(Device device, const Say& say, std::vector<std::string>& missing) {
  std::string why;
  const std::optional<study::Rates> rates = study::rates_now(device, why);
  if (!rates) {
    say("rates", "not measured");
    missing.push_back(cat("a GPU that can be used now: ", why));
    return;
  }
  say("rates", cat("copy ", rounded(rates->copy / 1e12, 3), " TB/s, bf16 product ",
                   rounded(rates->product / 1e12, 3), " TFLOP/s", study::text_of(rates->gpu)));
  if (!rates->gpu.why.empty())
    missing.push_back(cat("the GPU's clock and power: ", rates->gpu.why));
}

// What there is of GPUs, line by line. Returns what would be of use and is not there: a machine
// without a GPU is complete without it.
template <class Say>
std::vector<std::string> say_gpus(const Say& say) {
  const int count = cuda::device_count();
  const std::string built = study::cublaslt_version();
  if (count == 0) {
    say("cuda", built.empty() ? "not built in (FOVEA_CUDA=ON builds it)"
                              : cat("built in with cuBLASLt ", built,
                                    ", but there is no GPU to use: ", cuda::why_none()));
    return {};
  }
  std::vector<std::string> missing;
  for (int index = 0; index < count; ++index) {
    const cuda::DeviceInfo info = cuda::device_info(index);
    say(index == 0 ? "gpu" : cat("gpu ", index),
        cat(info.name, ", compute capability ", info.major, ".", info.minor, ", ",
            info.multiprocessors, " multiprocessors, ",
            human_bytes(static_cast<double>(info.free_memory)), " free of ",
            human_bytes(static_cast<double>(info.memory))));
    if (const std::string why = cuda::why_too_old(index); !why.empty())
      missing.push_back(cat("a GPU for the kernels: ", why));
  }
  const cuda::DeviceInfo first = cuda::device_info(0);
  const Device device{Device::Kind::cuda, 0};
  const std::string driver = study::GpuWatch(device).driver_version();
  say("cuda", cat("runtime ", cuda_version(first.runtime), ", driver ",
                  driver.empty() ? "" : cat(driver, " for "), cuda_version(first.driver),
                  ", cuBLASLt ", built));
  const std::string nccl = study::nccl_version();
  say("nccl", nccl.empty() ? "not found" : nccl);
  if (nccl.empty()) missing.emplace_back("libnccl.so.2, which training on several GPUs needs");
  const std::string no_trace = train::why_no_kernel_trace();
  say("cupti", no_trace.empty() ? "found" : "not found");
  if (!no_trace.empty()) missing.push_back(cat("CUPTI, for fovea train --profile: ", no_trace));
  say_rates(device, say, missing);
  return missing;
}

}  // namespace

ExitCode doctor(const Arguments& arguments, Output& out) {
  CommandLine line("doctor",
                   "Says what this machine has, and lists what some features miss on it. The exit "
                   "code is 8 only where nothing could be computed: no kernels for the processor, "
                   "or a BLAS that multiplies wrongly.");
  if (!line.parse(arguments, out)) return ExitCode::ok;

  const auto say = [&out](std::string_view key, const std::string& value) {
    std::string label(key);
    label.resize(10, ' ');
    out.line(cat(label, " ", value));
    out.record().add(key, value);
  };
  say("fovea", train::kVersion);
  say("processor", cpu_name());
  say("threads", cat(cpu_count()));
  say("memory", cat(human_bytes(memory_bytes("MemAvailable")), " free of ",
                    human_bytes(memory_bytes("MemTotal"))));
  say("disk", disk());
  say("blas", cat("OpenBLAS, kernels for ", blas_core()));
  const std::vector<std::string> missing = say_gpus(say);
  say("libraries", versions());
  say("kernels", name_of(isa()));  // throws DeviceError on a processor that cannot run them
  // OpenBLAS multiplies small and large matrices by different code.
  if (!blas_is_right(33) || !blas_is_right(230)) {
    throw DeviceError(cat("OpenBLAS computes wrong products with its kernels for ", blas_core(),
                          "; choose others with the environment variable OPENBLAS_CORETYPE, "
                          "for example OPENBLAS_CORETYPE=Haswell"));
  }
  for (const std::string& what : missing)
    out.line(cat("Missing: ", what));
  if (missing.empty()) out.line("Nothing is missing.");
  std::vector<std::string> quoted;
  quoted.reserve(missing.size());
  for (const std::string& what : missing)
    quoted.push_back(train::json_string(what));
  out.record().raw("missing", cat("[", join(quoted, ","), "]"));
  return ExitCode::ok;
}

}  // namespace fovea::apps
