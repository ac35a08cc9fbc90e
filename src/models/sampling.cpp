#include "models/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.h"
#include "core/text.h"

namespace fovea::models {

namespace {

void check_finite(std::span<const double> logits) {
  for (std::size_t id = 0; id < logits.size(); ++id) {
    if (!std::isfinite(logits[id]))
      throw NumericError(cat("the logit of token ", id,
                             std::isnan(logits[id]) ? " is not a number" : " is infinite"));
  }
}

// Logits become probabilities. The largest is taken off first, so no temperature overflows.
void normalise(std::vector<Choice>& from, double largest, double temperature) {
  double sum = 0;
  for (Choice& choice : from)
    sum += choice.probability = std::exp((choice.probability - largest) / temperature);
  for (Choice& choice : from)
    choice.probability /= sum;
}

bool goes_first(const Choice& a, const Choice& b) {
  return a.probability > b.probability || (a.probability == b.probability && a.id < b.id);
}

// `from` is sorted.
void keep_mass(std::vector<Choice>& from, double top_p) {
  double sum = 0;
  std::size_t kept = 0;
  while (kept < from.size() && (kept == 0 || sum < top_p))
    sum += from[kept++].probability;
  from.resize(kept);
  for (Choice& choice : from)
    choice.probability /= sum;
}

}  // namespace

std::vector<Choice> choices(std::span<const double> logits, const SamplingConfig& config) {
  if (config.ids > 0)
    logits = logits.first(std::min(logits.size(), static_cast<std::size_t>(config.ids)));
  check_finite(logits);
  const auto best = std::max_element(logits.begin(), logits.end());
  if (config.temperature == 0)
    return {{.id = static_cast<std::int32_t>(best - logits.begin()), .probability = 1}};
  std::vector<Choice> out(logits.size());
  for (std::size_t id = 0; id < logits.size(); ++id)
    out[id] = {static_cast<std::int32_t>(id), logits[id]};
  // Sorted by logit, not by probability: different logits may have the same exponential.
  const bool few = config.top_k > 0 && static_cast<std::size_t>(config.top_k) < out.size();
  if (few) {
    std::partial_sort(out.begin(), out.begin() + config.top_k, out.end(), goes_first);
    out.resize(static_cast<std::size_t>(config.top_k));
  } else if (config.top_p < 1) {
    std::sort(out.begin(), out.end(), goes_first);
  }
  normalise(out, *best, config.temperature);
  if (config.top_p < 1) keep_mass(out, config.top_p);
  return out;
}

std::int32_t pick(std::span<const Choice> from, double uniform) {
  double sum = 0;
  for (const Choice& choice : from) {
    sum += choice.probability;
    if (uniform < sum) return choice.id;
  }
  // Rounding left the sum below `uniform`: the last token that can be chosen at all.
  const auto last = std::find_if(from.rbegin(), from.rend(),
                                 [](const Choice& choice) { return choice.probability > 0; });
  return last->id;
}

Sampler::Sampler(const SamplingConfig& config, std::uint64_t seed, std::int64_t sequence)
    : config_(config), random_(seed, cat("generate.", sequence)) {}

std::int32_t Sampler::next(std::span<const double> logits, std::int64_t step) const {
  try {
    return pick(choices(logits, config_), random_.uniform(static_cast<std::uint64_t>(step)));
  } catch (const NumericError& e) {
    throw NumericError(cat("generate: new token ", step, ": ", e.what()));
  }
}

}  // namespace fovea::models
