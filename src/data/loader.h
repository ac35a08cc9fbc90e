#pragma once
// From numbered examples to batches. No loader has a state: any batch can be asked for at any time,
// by any thread or rank, so resuming is exact and the order of micro-batches cannot matter.

#include <cstdint>
#include <vector>

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
// nothing, so that all batches have one shape and a metric does not depend on anything else. Of
// several sources (of different lengths) the batches come one source behind the other.
class EvalLoader {
 public:
  struct Part {
    const Source* source = nullptr;  // borrowed
    std::int64_t rows = 0;           // of a batch
  };
  // Throws ConfigError if a number of rows is below 1.
  EvalLoader(const Source& source, std::int64_t rows);
  explicit EvalLoader(std::vector<Part> parts);

  std::int64_t examples() const;  // of all batches
  std::int64_t batches() const;
  Batch at(std::int64_t batch) const;  // batch in [0, batches())
  // Of the first `batches` batches.
  std::int64_t examples_in(std::int64_t batches) const;

 private:
  std::vector<Part> parts_;
};

}  // namespace fovea::data
