#include "core/isa.h"

#include <cstdlib>
#include <fstream>
#include <string_view>

#include <sched.h>

#include "core/error.h"
#include "core/text.h"

namespace fovea {

namespace {

bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("bmi2");
}

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

Isa choose() {
  __builtin_cpu_init();
  if (!has_avx2()) {
    throw DeviceError(
        cat("this processor (", cpu_name(), ") has no AVX2 and FMA, which the CPU kernels need"));
  }
  const char* asked = std::getenv("FOVEA_ISA");
  if (asked == nullptr || *asked == '\0') return has_avx512() ? Isa::avx512 : Isa::avx2;
  const std::string_view name = asked;
  if (name == "avx2") return Isa::avx2;
  if (name == "avx512") {
    if (has_avx512()) return Isa::avx512;
    throw DeviceError(
        cat("FOVEA_ISA is avx512, but this processor (", cpu_name(), ") has no AVX-512"));
  }
  throw ConfigError(cat("FOVEA_ISA is \"", name, "\", but must be avx2 or avx512"));
}

}  // namespace

Isa isa() {
  static const Isa chosen = choose();
  return chosen;
}

const char* name_of(Isa isa) {
  return isa == Isa::avx512 ? "avx512" : "avx2";
}

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    const auto colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

int cpu_count() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  const int count = CPU_COUNT(&set);
  return count < 1 ? 1 : count;
}

}  // namespace fovea
