// fovea doctor: what this machine has, and what is missing.

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <CLI/Version.hpp>
#include <cblas.h>
#include <fmt/core.h>
#include <nlohmann/json.hpp>
#include <spdlog/version.h>
#include <xxhash.h>

#include "command_line.h"
#include "core/isa.h"
#include "core/text.h"
#include "kernels/blas_info.h"
#include "train/environment.h"
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
      ", CLI11 ", CLI11_VERSION);
}

}  // namespace

ExitCode doctor(const Arguments& arguments, Output& out) {
  CommandLine line("doctor",
                   "Says what this machine has, and what fovea misses on it (exit code 8).");
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
  say("cuda", "not built in");
  say("libraries", versions());
  say("kernels", name_of(isa()));  // throws DeviceError on a processor that cannot run them
  // OpenBLAS multiplies small and large matrices by different code.
  if (!blas_is_right(33) || !blas_is_right(230)) {
    throw DeviceError(cat("OpenBLAS computes wrong products with its kernels for ", blas_core(),
                          "; choose others with the environment variable OPENBLAS_CORETYPE, "
                          "for example OPENBLAS_CORETYPE=Haswell"));
  }
  out.line("Nothing is missing.");
  return ExitCode::ok;
}

}  // namespace fovea::apps
