#include "study/bench_shape.h"

#include <vector>

#include "config/yaml.h"
#include "core/cuda_runtime.h"
#include "core/error.h"
#include "core/text.h"

namespace fovea::study {

namespace {

constexpr BenchShape kShapes[] = {
    {.name = "small",
     .summary = "a byte-level language model for CPUs",
     .layers = 4,
     .width = 256,
     .heads = 4,
     .mlp = 1024,
     .vocab = 256,
     .batch = 16,
     .seq = 256},
    {.name = "gpt2-124m",
     .summary = "GPT-2 small",
     .layers = 12,
     .width = 768,
     .heads = 12,
     .mlp = 3072,
     .vocab = 50257,
     .batch = 64,
     .seq = 1024,
     .h200_floor_ms = 104.8},
    {.name = "gpt2-350m",
     .summary = "GPT-2 medium",
     .layers = 24,
     .width = 1024,
     .heads = 16,
     .mlp = 4096,
     .vocab = 50257,
     .batch = 32,
     .seq = 1024,
     .h200_floor_ms = 145.7},
    {.name = "lra_tiny",
     .summary = "an encoder of two narrow layers",
     .encoder = true,
     .layers = 2,
     .width = 64,
     .heads = 2,
     .mlp = 128,
     .vocab = 256,
     .classes = 10,
     .batch = 32,
     .seq = 1024,
     .h200_floor_ms = 0.5},
    {.name = "niah_1k",
     .summary = "an encoder for needles in 1,024 tokens",
     .encoder = true,
     .layers = 4,
     .width = 128,
     .heads = 4,
     .mlp = 512,
     .vocab = 256,
     .classes = 10,
     .batch = 32,
     .seq = 1024},
    {.name = "lra_text",
     .summary = "an encoder of Long Range Arena's text size",
     .encoder = true,
     .layers = 4,
     .width = 256,
     .heads = 4,
     .mlp = 1024,
     .vocab = 256,
     .classes = 10,
     .batch = 32,
     .seq = 4096},
    {.name = "lra_listops",
     .summary = "an encoder of Long Range Arena's ListOps size",
     .encoder = true,
     .layers = 6,
     .width = 512,
     .heads = 8,
     .mlp = 2048,
     .vocab = 256,
     .classes = 10,
     .batch = 32,
     .seq = 2000},
};

}  // namespace

std::span<const BenchShape> bench_shapes() {
  return kShapes;
}

const BenchShape& bench_shape(std::string_view name) {
  std::vector<std::string> names;
  for (const BenchShape& shape : kShapes) {
    if (shape.name == name) return shape;
    names.emplace_back(shape.name);
  }
  const std::string near = nearest(name, names);
  throw ConfigError(cat("there is no shape '", name, "'; must be one of ", join(names, ", "),
                        near.empty() ? "" : cat("; did you mean ", near, "?")));
}

BenchShape sized(BenchShape shape, const BenchSettings& settings) {
  const bool changed = (settings.batch > 0 && settings.batch != shape.batch) ||
                       (settings.seq > 0 && settings.seq != shape.seq);
  if (settings.batch > 0) shape.batch = settings.batch;
  if (settings.seq > 0) shape.seq = settings.seq;
  if (changed) shape.h200_floor_ms = 0;
  return shape;
}

train::RunConfig bench_config(const BenchShape& shape, const BenchSettings& settings) {
  const bool gpu = settings.device != "cpu" && cuda::device_count() > 0;
  const std::string precision = !settings.precision.empty() ? settings.precision
                                : gpu                       ? "bf16-mixed"
                                                            : "fp32";
  const std::string attention = settings.attention.empty() ? "standard" : settings.attention;
  const std::int64_t micro = settings.micro > 0 ? settings.micro : shape.batch;
  // The data of the configuration stands for the vocabulary only: the task brings its own.
  const config::Node node = config::parse(
      cat("task: lm\nseed: 1\n", "data: {kind: markov, markov: {vocab: ", shape.vocab, "}}\n",
          "model: {n_layer: ", shape.layers, ", n_head: ", shape.heads, ", n_embd: ", shape.width,
          ", mlp_dim: ", shape.mlp, ", block_size: ", shape.seq, ", vocab_size: ", shape.vocab,
          ", attention: ", attention, "}\n", "train: {global_batch_size: ",
          shape.batch * settings.ranks, ", micro_batch_size: ", micro,
          ", max_steps: 1000000, max_norm: 1, precision: ", precision,
          ", device: ", settings.device, ", threads: ", settings.threads,
          ", cuda_graphs: ", settings.graphs, "}\n",
          "optim: {lr: 3e-4, betas: [0.9, 0.95]}\nsched: {kind: constant, warmup_steps: 0}\n",
          "distributed: {reproducible: ", settings.reproducible, ", zero: ", settings.zero, "}\n"),
      "fovea bench");
  return train::RunConfig::from(node);
}

double bench_flops(const BenchShape& shape, std::int64_t parameters) {
  const std::int64_t looked_up = shape.seq + (shape.encoder ? shape.vocab : 0);
  const double multiplied = static_cast<double>(parameters - looked_up * shape.width);
  const double attention = 12.0 * shape.layers * shape.width * static_cast<double>(shape.seq);
  return (6 * multiplied + attention) * static_cast<double>(shape.batch * shape.seq);
}

}  // namespace fovea::study
