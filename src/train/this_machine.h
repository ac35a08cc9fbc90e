#pragma once
// What this machine makes of settings, which may have been another's.

#include <string>

#include "core/stream.h"
#include "train/run_config.h"

namespace fovea::train {

// The device that the configuration asks for: auto is the first GPU where there is one, the
// precision runs there and the environment variable FOVEA_DEVICE is not cpu. Throws DeviceError if
// a GPU is asked for and cannot be used, ConfigError if FOVEA_DEVICE is neither cpu nor auto.
// With several processes on a machine each takes the GPU of its number.
Device device_of(const TrainConfig& config, int local_rank = 0);
// Why `auto` is not a GPU, for the run's header; empty if it is one or was not asked for.
std::string why_not_cuda(const TrainConfig& config);
// The number of CPU threads; by default the processes of a machine share its cores.
int threads_of(const TrainConfig& config, int local_size = 1);

// Which settings were asked for now, and not by the run that a model comes from.
struct AskedNow {
  bool device = false, precision = false, gemm_table = false;
};

// Settings of a checkpoint, so that it can be used on any machine: cuda stands for auto, without a
// GPU tf32 for fp32, and a tuning table that does not fit is left out. Each is warned of. What was
// asked for now stays. Throws ConfigError for tf32 asked for now where the device has none,
// DeviceError as device_of() does.
TrainConfig usable_here(TrainConfig trained, const AskedNow& asked);

// How the stream multiplies: with tf32 or not, and on a GPU by train.gemm_table. Whoever computes
// with a run's settings calls it first. Elsewhere the table is only read; on the CPU a warning says
// so. Throws ConfigError, IoError for the table.
void prepare_products(Stream& stream, const TrainConfig& config);

}  // namespace fovea::train
