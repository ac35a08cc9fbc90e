#pragma once
// The training step, and all that lives from step to step. Evaluation, checkpoints and stopping are
// decided outside, in train().

#include <cstdint>
#include <memory>
#include <string>

#include "autograd/tape.h"
#include "core/memory.h"
#include "dist/communicator.h"
#include "dist/tree.h"
#include "optim/adamw.h"
#include "optim/grad_scaler.h"
#include "optim/parameter_store.h"
#include "optim/schedule.h"
#include "train/checkpoint.h"
#include "train/evaluator.h"
#include "train/feed.h"
#include "train/import/imported_model.h"
#include "train/run_config.h"
#include "train/run_log.h"
#include "train/task.h"

namespace fovea::train {

// Peaks since the trainer was made.
struct MemoryUse {
  std::size_t persistent = 0;   // live bytes of parameters, gradients, moments, batches
  std::size_t activations = 0;  // live bytes of steps and evaluations
  std::size_t reserved = 0;     // held for activations
  std::size_t total() const { return persistent + reserved; }
};

class Trainer {
 public:
  // Builds task, model and optimizer state on the device, at step 0. On meta everything is counted
  // and nothing computed. Throws ConfigError, IoError, OutOfMemory.
  Trainer(const RunConfig& config, Device device);

  // One optimizer step. Throws NumericError where train.on_nonfinite says so: the step is not made.
  StepRecord step();
  // Scores the held-out split with eval.max_batches.
  Evaluation evaluate(Split split, std::int64_t max_batches);

  const nn::Clock& clock() const { return clock_; }
  Task& task() { return *task_; }
  optim::ParameterStore& store() { return store_; }
  Stream& stream() { return stream_; }
  Feed& feed() { return feed_; }
  std::int64_t gradient_buffers() const { return tree_.buffers(); }
  MemoryUse memory() const;
  std::string memory_report() const;  // by op, for --memory

  // What a checkpoint needs of the trainer: step, tokens, seed, data hash, scaler.
  RunState state() const;
  // Weights of elsewhere, at step 0. Throws ConfigError for a model.* key that says otherwise,
  // CheckpointError.
  void start_from(const ImportedModel& source);
  // Weights, moments and everything in its state. Throws CheckpointError if the training data has
  // another fingerprint than it had.
  void resume(const Checkpoint& checkpoint);

 private:
  void forward_backward(const data::Batch& batch, std::int64_t targets);
  void check_finite(const Tensor& root, const StepScalars& decision);
  std::string first_not_finite(const Tensor& gradient) const;
  StepRecord record(const Tensor& root, std::int64_t targets) const;

  RunConfig config_;
  std::size_t persistent_before_;  // bytes that others hold
  Stream stream_;
  CachingAllocator activations_;
  StepState at_;
  Tape tape_;
  Ctx ctx_;
  nn::Clock clock_;
  std::unique_ptr<Task> task_;
  std::unique_ptr<dist::Communicator> ranks_;
  optim::ParameterStore store_;
  dist::GradTree tree_;
  Feed feed_;
  optim::GradScaler scaler_;
  optim::AdamW adamw_;
  optim::Schedule schedule_;
};

// The device and the number of CPU threads that the configuration asks for.
Device device_of(const TrainConfig& config);
int threads_of(const TrainConfig& config);

}  // namespace fovea::train
