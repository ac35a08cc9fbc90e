#pragma once
// Choosing the next token from its logits. On the host, in f64.

#include <cstdint>
#include <span>
#include <vector>

#include "core/random.h"

namespace fovea::models {

struct SamplingConfig {
  double temperature = 1;  // 0: the most probable token
  int top_k = 0;           // the k most probable tokens; 0: all
  double top_p = 1;        // the fewest tokens that together have at least this probability
  std::int32_t ids = 0;    // only ids below it; 0: all
};

struct Choice {
  std::int32_t id = 0;
  double probability = 0;
};

// The tokens that may come next and their probabilities, which sum to 1. First the logits are
// divided by the temperature, then the k most probable stay, then of what is left the fewest whose
// probabilities sum to top_p, at least one. Of equals the lower id goes first, so exactly k stay.
// By descending probability; by id where neither top_k nor top_p takes any away. Temperature 0
// gives one choice. Throws NumericError for a logit that is not finite.
// Source: Holtzman et al., ICLR 2020 (top-p); the order as in Hugging Face's generate().
std::vector<Choice> choices(std::span<const double> logits, const SamplingConfig& config);

// The choice at `uniform`, in (0, 1), of the cumulative probabilities.
std::int32_t pick(std::span<const Choice> from, double uniform);

// One sequence's choices: a pure function of (seed, sequence, step) and the logits.
class Sampler {
 public:
  Sampler(const SamplingConfig& config, std::uint64_t seed, std::int64_t sequence);
  // `step` counts the new tokens from 0. Throws NumericError naming the step.
  std::int32_t next(std::span<const double> logits, std::int64_t step) const;

 private:
  SamplingConfig config_;
  NamedStream random_;
};

}  // namespace fovea::models
