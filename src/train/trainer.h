#pragma once
// The training step, and all that lives from step to step. Evaluation, checkpoints and stopping are
// decided outside, in train().

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autograd/tape.h"
#include "core/memory.h"
#include "core/staging.h"
#include "dist/reducer.h"
#include "dist/tree.h"
#include "optim/adamw.h"
#include "optim/grad_scaler.h"
#include "optim/parameter_store.h"
#include "optim/schedule.h"
#include "train/checkpoint.h"
#include "train/environment.h"
#include "train/evaluator.h"
#include "train/feed.h"
#include "train/import/imported_model.h"
#include "train/ranks.h"
#include "train/run_config.h"
#include "train/run_log.h"
#include "train/step_graph.h"
#include "train/task.h"
#include "train/this_machine.h"

namespace fovea::train {

// Peaks since the trainer was made.
struct MemoryUse {
  std::size_t persistent = 0;   // live bytes of parameters, gradients, moments, batches
  std::size_t activations = 0;  // live bytes of steps and evaluations
  std::size_t reserved = 0;     // held for activations
  std::size_t total() const { return persistent + reserved; }
};

// What this rank would like; all ranks learn of it with the step's record.
struct StopWish {
  bool signal = false, time = false;
};

class Trainer {
 public:
  // Builds task, model and optimizer state on the device, at step 0. On meta everything is counted
  // and nothing computed. `task` stands for the one that the configuration names. `config` is of
  // for_ranks().
  // Throws ConfigError, IoError, OutOfMemory.
  Trainer(const RunConfig& config, Device device, std::unique_ptr<Task> task = nullptr,
          Ranks ranks = alone());

  // Starts one optimizer step, on all ranks, and returns the record of the newest step whose
  // results have arrived: this one on the CPU, the one before on a GPU, where the host runs ahead
  // (none at first). Throws NumericError where train.on_nonfinite says so of that step: it was not
  // made.
  std::optional<StepRecord> advance(StopWish wish = {});
  // The record of the step that advance() has not returned yet, if there is one.
  std::optional<StepRecord> flush();
  // One optimizer step and its record, waited for.
  StepRecord step();
  // Scores the held-out split with eval.max_batches.
  Evaluation evaluate(Split split, std::int64_t max_batches);

  const nn::Clock& clock() const { return clock_; }
  Task& task() { return *task_; }
  optim::ParameterStore& store() { return store_; }
  const optim::ParameterStore& store() const { return store_; }
  Stream& stream() { return stream_; }
  Feed& feed() { return feed_; }
  const Feed& feed() const { return feed_; }
  std::int64_t gradient_buffers() const { return tree_.buffers(); }
  const StepGraph& micro_graph() const { return micro_graph_; }
  const StepGraph& update_graph() const { return update_graph_; }
  const StepGraph& last_graph() const { return last_graph_; }
  const Ranks& ranks() const { return ranks_; }
  // What its bits depend on besides the configuration.
  const Arithmetic& arithmetic() const { return arithmetic_; }
  // Of the masters: equal bits have equal ones. Waits for the stream.
  std::uint64_t weights_fingerprint();
  MemoryUse memory() const;
  MemoryStats activation_memory() const { return activations_.stats(); }
  std::string memory_report() const;  // by op, for --memory

  // What a checkpoint needs of the trainer: step, tokens, seed, data hash, scaler.
  RunState state();
  // Weights of elsewhere, at step 0. Throws ConfigError for a model.* key that says otherwise,
  // CheckpointError.
  void start_from(const ImportedModel& source);
  // Weights, moments and everything in its state. Throws CheckpointError if the training data has
  // another fingerprint than it had.
  void resume(const Checkpoint& checkpoint);

 private:
  // A step whose results are on their way to the host.
  struct Pending {
    StepRecord record;
    std::int64_t targets = 0;
    Feed::Loaded loaded;            // by this rank
    StopWish wish;                  // of this rank
    std::shared_ptr<void> results;  // StepScalars, then the tail's sums
    Event arrived;
  };

  // Whether this rank has its share of the moments only (ZeRO stage 1).
  bool shards() const { return config_.distributed.zero > 0 && ranks_.size() > 1; }
  void enqueue(StopWish wish);
  void say_tuned_products();
  data::Batch load(std::int64_t micro);
  void stage_at(std::int64_t first_sample);
  void micro_step(const data::Batch& batch, bool last);
  void forward_backward(const data::Batch& batch, const Tensor& leaf, bool fresh,
                        const std::vector<Tensor>* partners);
  void reduce_tail(const Tensor& tail, const Pending& mine);
  void update(const Tensor& gradient);
  void send_results(const Tensor& tail, Pending pending);
  void note_micro_batches(const std::vector<std::int64_t>& micros) const;
  StepRecord complete();
  void check_finite(const StepRecord& record, double loss, const StepScalars& decision);
  std::string first_not_finite() const;

  RunConfig config_;
  std::size_t persistent_before_;  // bytes that others hold
  Stream stream_;
  CachingAllocator activations_;
  Staging staging_;
  StepState at_;      // as the host knows it
  Tensor device_at_;  // the same on a GPU
  Tape tape_;
  Ctx ctx_;
  nn::Clock clock_;
  std::unique_ptr<Task> task_;
  Ranks ranks_;
  optim::ParameterStore store_;
  dist::GradTree tree_;
  Feed feed_;
  optim::GradScaler scaler_;
  optim::AdamW adamw_;
  optim::Schedule schedule_;
  std::optional<dist::GradReducer> reducer_;  // with several ranks
  StepGraph micro_graph_, last_graph_, update_graph_;
  Arithmetic arithmetic_;
  bool products_counted_ = false;
  bool has_aux_ = false;  // some micro-batch had auxiliary terms
  std::deque<Pending> pending_;
  std::vector<std::shared_ptr<void>> free_results_;
};

}  // namespace fovea::train
