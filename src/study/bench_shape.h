#pragma once
// The models that `fovea bench` times, of the sizes that others publish times for.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "train/run_config.h"

namespace fovea::study {

// GPT-2-like language models, and pre-norm encoders that classify by the mean of their last states.
struct BenchShape {
  std::string_view name, summary;
  bool encoder = false;
  int layers = 0, width = 0, heads = 0, mlp = 0, vocab = 0;
  int classes = 0;  // encoder
  std::int64_t batch = 0, seq = 0;
  double h200_floor_ms = 0;  // of a bf16 step at these sizes by its best known parts; 0: unknown
};

std::span<const BenchShape> bench_shapes();
// Throws ConfigError that names the nearest.
const BenchShape& bench_shape(std::string_view name);

// What may be said besides the shape; 0 and "" stand for the shape's own or the usual.
struct BenchSettings {
  std::int64_t batch = 0, micro = 0, seq = 0;
  std::string precision = {};  // "": bf16-mixed on a GPU, else fp32
  std::string attention = {};  // "": standard
  std::string device = "auto";
  bool reproducible = true, graphs = true;
  int threads = 0;
  int zero = 0;   // distributed.zero
  int ranks = 1;  // each has `batch` sequences of a step (weak scaling)
};

// The shape with the batch and length that the settings ask for.
BenchShape sized(BenchShape shape, const BenchSettings& settings);
// A run of that shape. Throws ConfigError as RunConfig does.
train::RunConfig bench_config(const BenchShape& shape, const BenchSettings& settings);

// FLOPs of a training step by the convention that published utilisations follow: 6 a parameter and
// token, position table and looked-up (untied) tokens left out, and 12 layers x width x length a
// token for attention, masked or not. `parameters`: all of the model's.
double bench_flops(const BenchShape& shape, std::int64_t parameters);

}  // namespace fovea::study
