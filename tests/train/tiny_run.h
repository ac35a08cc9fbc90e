#pragma once
// Runs small enough for a test: a config, its folder, and what it left behind.

#include <initializer_list>
#include <string>
#include <vector>

#include "config/yaml.h"
#include "core/log.h"
#include "temporary.h"
#include "train/run_config.h"
#include "train/run_folder.h"
#include "train/train.h"

namespace fovea::test {

// Two layers, eight micro-batches a step, dropout, generated text. Overrides come last.
inline train::RunConfig tiny_config(const std::string& out_dir,
                                    std::vector<std::string> overrides = {}) {
  log::console(false);
  config::Node node = config::parse(R"(
task: lm
seed: 7
model: {n_layer: 2, n_head: 2, n_embd: 32, block_size: 16, dropout: 0.1}
data: {kind: markov, markov: {vocab: 32, train_examples: 512, test_examples: 24}}
train: {global_batch_size: 16, micro_batch_size: 2, max_steps: 12, threads: 1}
optim: {lr: 3e-3}
sched: {kind: constant, warmup_steps: 4}
eval: {interval: 4, micro_batch_size: 8}
ckpt: {interval: 5}
log: {interval: 1}
)",
                                    "tiny.yaml");
  overrides.push_back("out_dir=" + out_dir);
  config::override_with(node, overrides);
  return train::RunConfig::from(node);
}

inline train::TrainResult run_tiny(const std::string& out_dir,
                                   std::vector<std::string> overrides = {}) {
  return train::train(tiny_config(out_dir, std::move(overrides)));
}

inline std::string newest(const std::string& run) {
  return train::checkpoints_in(run).back().path;
}
inline std::string weights(const std::string& run) {
  return contents(newest(run) + "/model.safetensors");
}
inline std::string metrics(const std::string& run) {
  return contents(run + "/metrics.jsonl");
}

}  // namespace fovea::test
