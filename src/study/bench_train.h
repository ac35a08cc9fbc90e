#pragma once
// `fovea bench train`: whole training steps through train::Trainer: a fresh batch, forward,
// backward, clipping, AdamW.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dist/world.h"
#include "study/bench_shape.h"
#include "study/gpu_state.h"
#include "train/json_text.h"

namespace fovea::study {

struct TrainBench {
  BenchShape shape;  // with the batch and length that were timed
  std::string precision, attention, device;
  bool reproducible = true;
  int ranks = 1;
  std::int64_t parameters = 0, micro_batches = 1;
  double ms = 0;                   // the median over groups of steps, per step; of the slowest rank
  double tokens_per_second = 0;    // of all ranks
  std::optional<double> mfu;       // of promised_rate(); nothing where that is not known
  std::optional<double> floor_ms;  // nothing where none is known
  double loss = 0;                 // of the first step
  double first_loss_seconds = 0;   // from the start of the process
  std::int64_t steps = 0, warm_up_steps = 0;
  std::size_t peak_bytes = 0;    // persistent and reserved, by the allocators
  std::size_t device_bytes = 0;  // in use on the GPU, everyone's; 0 on the CPU
  std::vector<std::pair<std::string, std::size_t>> peak_by_tag;  // largest first
  std::int64_t graph_replays = 0;
  std::string no_graph;  // why there was none; empty if there was
  GpuState gpu;
};

// Times at least `seconds` of steps, hot. Throws ConfigError, DeviceError, OutOfMemory.
TrainBench bench_train(const BenchShape& shape, const BenchSettings& settings, double seconds);
// The same with all processes of `world`, which all call it; settings.ranks is their number.
TrainBench bench_train(const BenchShape& shape, const BenchSettings& settings, double seconds,
                       const dist::World& world);

// Adds its fields; the keys are part of the interface (docs/bench.md).
void add_to(train::JsonObject& record, const TrainBench& result);
// Several lines for people.
std::string text_of(const TrainBench& result);

// Since the kernel started this process; exact to 10 ms. 0 where it cannot be told.
double seconds_since_process_start();

}  // namespace fovea::study
