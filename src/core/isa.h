#pragma once
// Which instruction set the CPU kernels run with. Bits are promised per instruction set.

#include <string>

namespace fovea {

enum class Isa { avx2, avx512 };

// The best this machine has, or what the environment variable FOVEA_ISA (avx2, avx512) names.
// Chosen once per process. Throws DeviceError if the machine has no AVX2, FMA and F16C, or lacks
// what is asked.
Isa isa();
const char* name_of(Isa isa);
std::string cpu_name();  // the processor's own name
int cpu_count();         // processors this process may use

}  // namespace fovea
