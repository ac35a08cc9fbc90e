#pragma once
// The past as sums of features times values: what kernel methods remember while decoding.

#include <vector>

#include "attention/attention.h"
#include "attention/past_samples.h"
#include "autograd/ops/linear_attention.h"

namespace fovea::attention {

class RunningState final : public DecodeState {
 public:
  // `states` sums of `features` x (Dv + 1) for each sample, and the scale of each.
  RunningState(Ctx& ctx, std::int64_t batch, std::int64_t states, std::int64_t features,
               std::int64_t values, std::int64_t max_length);

  std::int64_t length() const override { return lengths_.longest(); }
  std::int64_t bytes_per_token() const override { return 0; }  // it does not grow
  std::int64_t bytes() const;                                  // of one sample
  void reorder(Ctx& ctx, std::span<const std::int64_t> samples) override;

  // Counts counts[b] more tokens of sample b. Throws ShapeError past max_length; nothing is counted
  // then.
  void grow(std::span<const std::int64_t> counts);
  const std::vector<std::int64_t>& lengths() const { return lengths_.each(); }
  const LinearState& sums() const { return sums_; }

 private:
  LinearState sums_;
  SampleLengths lengths_;
  std::int64_t max_length_;
};

}  // namespace fovea::attention
