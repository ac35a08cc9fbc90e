#pragma once
// train.micro_batch_size: auto. The number is decided before a run, by prediction, and recorded in
// its configuration: another one adds the same gradients in another order.

#include <cstddef>
#include <cstdint>
#include <string>

#include "train/ranks.h"
#include "train/run_config.h"

namespace fovea::train {

// The share of the memory that a prediction may fill. What allocators do not count needs the rest:
// a GPU's context, kernels' scratch memory, workspaces of libraries.
inline constexpr double kFillable = 0.92;

// A rank's share of the global batch, or that halved once or more, as long as it is even: the
// largest whose predicted peak (train/dry_run.h) fits into kFillable of `memory` bytes. (A smaller
// one may need more: the tree of its gradients is higher.) Reads the data once a try. Throws
// OutOfMemory if none fits, and what dry_run() would.
std::int64_t fitting_micro_batch(const RunConfig& config, int ranks, std::size_t memory);

// Bytes that a process may use: all of its GPU; of this machine's memory what is available now, a
// part of it for each of `local_size` processes. Throws DeviceError where nothing tells.
std::size_t usable_memory(Device device, int local_size);

// The configuration with a number for auto, or as it is if it has none. `config_before` (YAML, or
// empty) is of the checkpoint that the run goes on from: its number is kept, if so many ranks can
// share its micro-batches. Else the rank with the least memory decides for all. Says in the log
// what was decided. All ranks call it.
RunConfig with_fitting_micro_batch(const RunConfig& config, const Ranks& ranks, Device device,
                                   const std::string& config_before);
// The same for a run to come of so many ranks on this machine, on the device that train.device asks
// for. Throws DeviceError if that is not here: its memory is not known.
RunConfig with_fitting_micro_batch(const RunConfig& config, int ranks);

}  // namespace fovea::train
