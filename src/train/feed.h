#pragma once
// Brings the micro-batches of a step to the device, and remembers what was consumed.

#include <cstdint>
#include <span>
#include <vector>

#include "core/staging.h"
#include "core/stream.h"
#include "data/loader.h"
#include "train/run_config.h"

namespace fovea::train {

class Feed {
 public:
  // Borrows the loader, the stream and the staging. This process is `rank` of `ranks` and computes
  // its share of every step.
  // `vocabulary`: token ids must be below it, which a GPU's kernels do not check; 0: not checked.
  Feed(const data::Loader& loader, Stream& stream, Staging& staging, MicroOrder order,
       std::uint64_t seed, std::int64_t vocabulary = 0, int rank = 0, int ranks = 1);

  // Micro-batches of a step, over all ranks, and those of this rank in the order to compute them.
  std::int64_t global_micro_batches() const { return loader_.micro_batches(); }
  std::vector<std::int64_t> micro_batches(std::int64_t step) const;
  // One of them, on the device, where every micro-batch of a shape lies at the same addresses;
  // valid until the next. Throws IoError.
  data::Batch load(std::int64_t step, std::int64_t micro);
  // Scored targets of the whole global batch. Throws IoError if there are none.
  std::int64_t global_targets(std::int64_t step) const;

  // What was loaded since the last call: a sum over samples, each with its place in the step, so
  // that neither the cut into micro-batches nor their order nor the number of ranks shows.
  struct Loaded {
    std::uint64_t hash = 0;
    std::int64_t tokens = 0;
  };
  Loaded take_loaded();
  // A step is finished, which all ranks together loaded this for: chains the hash.
  void finish_step(const Loaded& all);
  std::uint64_t data_hash() const { return data_hash_; }
  std::int64_t tokens() const { return tokens_; }  // input tokens loaded in finished steps
  void restore(std::uint64_t data_hash, std::int64_t tokens);
  // Seconds spent in load() since the last call.
  double take_seconds();

 private:
  void note(const data::Batch& batch);
  data::Batch staged(const data::Batch& batch);

  const data::Loader& loader_;
  Stream& stream_;
  Staging& staging_;
  data::Batch on_device_;
  MicroOrder order_;
  std::uint64_t seed_;
  std::int64_t vocabulary_;
  int rank_, ranks_;
  Loaded loaded_;
  std::uint64_t data_hash_ = 0;
  std::int64_t tokens_ = 0;
  double seconds_ = 0;
};

// A batch on the stream's device: the host tensors themselves on the CPU, copies elsewhere (on meta
// all but the targets, which the loss looks at). `vocabulary` as for Feed. Throws IoError.
data::Batch on_device(const data::Batch& batch, Stream& stream, std::int64_t vocabulary = 0);

}  // namespace fovea::train
