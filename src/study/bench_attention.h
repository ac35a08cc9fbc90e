#pragma once
// `fovea bench attention`: a method alone, forward and backward, beside what its products and
// tokens take at the rates of this device.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "attention/registry.h"
#include "core/error.h"
#include "core/precision.h"
#include "core/stream.h"
#include "study/peers.h"
#include "study/rates.h"

namespace fovea::study {

struct AttentionAsk {
  const attention::AttentionSpec* spec = nullptr;
  config::Node options = {};
  Precision precision = Precision::fp32;
  AttentionSize size;
  double seconds = 0.3;  // timed of each direction, at least; as long a warm-up, at most 0.3
  // Tokens of the comparison with f64, at most; 0: none. By default more than those under which
  // patterns of default options are dense.
  std::int64_t error_n = 2048;
};

struct DirectionTime {
  double ms = 0;
  std::int64_t pieces = 0;
  // FLOPs of the batch: what the mathematics asks for, what the kernels carry out (both as the
  // method declares), and what the kernels count, the pairs of a pattern included.
  double useful = 0, executed = 0, counted = 0;
  double bytes = 0;  // that have to be read and written
  double floor_ms =
      0;         // useful products and bytes at the rates of this device, whichever is longer
  GpuState gpu;  // during the last of them

  double of_limit() const { return floor_ms / ms; }
};

struct AttentionTime {
  AttentionSize size;
  std::string kernel, refused;
  DirectionTime forward, backward;
  std::size_t peak_bytes =
      0;  // of what a forward and a backward allocate, o and gradients included
  // The largest distance from the same method in f64 on the CPU, on the same rounded inputs and
  // parameters, relative to the largest entry: of o, dq, dk, dv. Of one sample and up to two
  // key/value heads.
  std::vector<std::pair<std::string, double>> errors;
  std::int64_t error_n = 0;
  std::string no_error;  // why there are none
  std::vector<PeerTime> peers;
};

// Tokens are views of one packed projection, as a model hands them over. Queries and keys of
// different number are cross-attention. Forward is timed without a tape, backward alone, each hot.
// Throws ConfigError for what the method refuses.
AttentionTime bench_attention(Stream& stream, const AttentionAsk& ask, const Rates& rates,
                              const Peers& peers);

// The same for each size in turn instead of ask.size, up to the first that fails.
struct AttentionTimes {
  std::vector<AttentionTime> times;
  std::string failed;  // which size failed and how; empty: none
  ExitCode code = ExitCode::ok;
};
// Throws what the first size throws.
AttentionTimes bench_attention(Stream& stream, AttentionAsk ask,
                               const std::vector<AttentionSize>& sizes, const Rates& rates,
                               const Peers& peers);

std::string text_of(const AttentionSize& size);                // "B2 H16/4 N4096 D64/64 causal"
std::string json_of(const std::vector<AttentionTime>& times);  // a list
std::string text_of(const std::vector<AttentionTime>& times);

}  // namespace fovea::study
