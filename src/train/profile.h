#pragma once
// `fovea train --profile N`: where the time of a training step goes on the GPU, kernel by kernel.

#include <cstdint>
#include <string>
#include <vector>

#include "train/kernel_trace.h"
#include "train/run_config.h"

namespace fovea::train {

struct KernelRow {
  std::string name;
  std::int64_t calls = 0;
  double ms = 0;     // of all calls
  double share = 0;  // of the time that any of them ran
};

struct Profile {
  std::int64_t steps = 0;
  double span_ms = 0;           // from the first start to the last end
  double busy_ms = 0;           // of all kernels, copies and sets
  std::vector<KernelRow> rows;  // largest first
  std::string table, trace;     // paths of the files
};

Profile summed(const std::vector<KernelRecord>& records, std::int64_t steps);
std::string profile_text(const Profile& profile);
std::string profile_json(const Profile& profile);  // an object
// For chrome://tracing and Perfetto: one complete event a record, one row a stream.
std::string chrome_trace(const std::vector<KernelRecord>& records);

// Trains from fresh weights: a warm-up past the capture of graphs, then `steps` steps that are
// recorded. Writes profile.txt and trace.json into config.out_dir; leaves no checkpoint and no log.
// Throws DeviceError without a GPU or without CUPTI.
Profile profile(const RunConfig& config, std::int64_t steps);

}  // namespace fovea::train
