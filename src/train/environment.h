#pragma once
// Where a run computes: environment.json, and what its bits depend on.

#include <string>

#include "core/precision.h"
#include "train/run_config.h"
#include "train/run_state.h"

namespace fovea::train {

constexpr const char* kVersion = "0.1.0";

Arithmetic arithmetic(Device device, Precision precision);
// The same with the tuning table that a GPU's products take, by its fingerprint. Throws
// ConfigError, IoError for the table.
Arithmetic arithmetic(Device device, const TrainConfig& config);
// fovea, compiler, instruction set, BLAS core, processor, threads, ranks, and the step the run
// started from.
std::string environment_json(Device device, const TrainConfig& config, int threads,
                             std::int64_t from_step, int ranks = 1);
// "" if both compute the same bits, else what differs: "isa avx2 -> avx512, blas core ...".
std::string difference(const Arithmetic& then, const Arithmetic& now);

}  // namespace fovea::train
