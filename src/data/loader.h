#pragma once
// From numbered examples to batches. No loader has a state: any batch can be asked for at any time,
// by any thread or rank, so resuming is exact and the order of micro-batches cannot matter.

#include <cstdint>

#include "data/example.h"
#include "data/source.h"

namespace fovea::data {

struct BatchShape {
  std::int64_t global_batch = 0;  // samples a step
  std::int64_t micro_batch = 0;   // rows of a Batch; divides global_batch
};

// Training: sample s of the run is at place s mod size of epoch s / size, and every epoch goes
// through the source in its own random order, a pure function of (seed, epoch).
class Loader {
 public:
  // Borrows the source. Throws ConfigError if the sizes do not divide.
  Loader(const Source& source, BatchShape shape, std::uint64_t seed);

  std::int64_t micro_batches() const { return shape_.global_batch / shape_.micro_batch; }  // a step
  // Micro-batch `micro` in [0, micro_batches()) of optimizer step `step`, from 0.
  Batch at(std::int64_t step, std::int64_t micro) const;
  // Scored targets of the whole global batch of a step: what the summed loss is divided by.
  std::int64_t target_tokens(std::int64_t step) const;

 private:
  const Source& source_;
  BatchShape shape_;
  std::uint64_t seed_;
};

// Evaluation: every example once, in order. The last batch is filled up with rows that score
// nothing, so that all batches have one shape and a metric does not depend on anything else.
class EvalLoader {
 public:
  // Borrows the source. Throws ConfigError if micro_batch < 1.
  EvalLoader(const Source& source, std::int64_t micro_batch);

  std::int64_t examples() const { return source_.size(); }
  std::int64_t batches() const;
  std::int64_t rows() const { return micro_batch_; }  // of every batch
  Batch at(std::int64_t batch) const;                 // batch in [0, batches())

 private:
  const Source& source_;
  std::int64_t micro_batch_;
};

}  // namespace fovea::data
