#pragma once
// What a checkpoint remembers besides tensors: state.json.

#include <cstdint>
#include <string>
#include <string_view>

#include "kernels/optim.h"
#include "train/early_stop.h"
#include "train/line_file.h"

namespace fovea::train {

// Where the bits come from: they are promised per instruction set and BLAS core only.
struct Arithmetic {
  std::string isa, blas_core, precision;
  friend bool operator==(const Arithmetic&, const Arithmetic&) = default;
};

struct RunState {
  std::int64_t step = 0;    // optimizer steps finished
  std::int64_t tokens = 0;  // input tokens consumed by them
  std::uint64_t seed = 0;
  std::uint64_t data_hash = 0;   // of everything consumed, chained over the steps
  std::string data_fingerprint;  // of the training data (data::Source); "" in older states
  StepScalars scaler;            // loss scale, Adam's count, skipped steps
  BestSoFar best;
  double seconds = 0;      // of training so far, over all starts
  FileMark metrics, perf;  // metrics.jsonl and perf.jsonl at this commit
  Arithmetic arithmetic;
  std::string version;      // of fovea
  std::string config_yaml;  // the whole resolved configuration
};

// Reading back what state_json wrote gives the same values, to the bit.
std::string state_json(const RunState& state);
// `path` names the file in messages. Throws CheckpointError for anything else than a state.
RunState parse_state(std::string_view json, const std::string& path);

}  // namespace fovea::train
