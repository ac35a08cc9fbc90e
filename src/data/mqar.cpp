#include "data/mqar.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "core/error.h"
#include "core/text.h"
#include "data/draws.h"
#include "data/hash.h"

namespace fovea::data {

namespace {

// Of each example; more pairs or positions than that do not fit in memory.
constexpr int kDrawBits = 20;

// Draws one index by weight and takes it out (weight 0).
std::size_t draw_weighted(Draws& draws, std::span<double> weights) {
  double left = draws.uniform() * std::accumulate(weights.begin(), weights.end(), 0.0);
  std::size_t chosen = weights.size();
  for (std::size_t i = 0; i < weights.size() && left > 0; ++i) {
    if (weights[i] == 0) continue;
    chosen = i;  // rounding may leave a little over behind the last one
    left -= weights[i];
  }
  FOVEA_ASSERT(chosen < weights.size());
  weights[chosen] = 0;
  return chosen;
}

void check(const MqarConfig& config, int seq_len) {
  const auto refuse = [](const auto&... text) { throw ConfigError(cat("data.mqar", text...)); };
  if (config.pairs < 1) refuse(".pairs is ", config.pairs, ", but must be at least 1");
  if (seq_len % 2 != 0) refuse(": the sequence length is ", seq_len, ", but must be even");
  if (std::int64_t{4} * config.pairs > seq_len) {
    refuse(".pairs is ", config.pairs, ", but must be at most ", seq_len / 4,
           " (a quarter of the sequence length ", seq_len, ")");
  }
  if (config.vocab <= seq_len) {
    refuse(".vocab is ", config.vocab, ", but must be above the sequence length (", seq_len, ")");
  }
  if (!(config.power > 0) || !std::isfinite(config.power))
    refuse(".power is ", config.power, ", but must be above 0");
  if (seq_len >= 1 << (kDrawBits - 2))
    refuse(": the sequence length is ", seq_len, ", but must be below 262144");
}

}  // namespace

MqarSource::MqarSource(const MqarConfig& config, int seq_len, Split split, std::uint64_t seed)
    : config_(config),
      seq_len_(seq_len),
      size_(split == Split::train ? config.train_examples : config.test_examples),
      seed_(seed),
      stream_(split == Split::train ? "mqar.train" : "mqar.test") {
  check(config, seq_len);
  if (size_ < 1)
    throw ConfigError(cat("data.mqar has ", size_, " ", name_of(split), " examples, but needs 1"));
  for (int x = 1; x <= (seq_len - 2 * config.pairs) / 2; ++x) {
    weights_.push_back(config.power * std::pow(static_cast<double>(x), config.power - 1));
  }
}

void MqarSource::get(std::int64_t i, std::int64_t /*epoch*/, Example& example) const {
  FOVEA_ASSERT(i >= 0 && i < size_);
  Draws draws(seed_, stream_, i, kDrawBits);
  const auto length = static_cast<std::size_t>(seq_len_),
             pairs = static_cast<std::size_t>(config_.pairs);
  const auto keys = draws.distinct(1, config_.vocab / 2, config_.pairs);
  const auto values = draws.distinct(config_.vocab / 2, config_.vocab, config_.pairs);
  example.tokens.assign(length, 0);
  example.targets.assign(length, kIgnored);
  if (config_.random_non_queries) {
    for (std::size_t at = 2 * pairs; at < length; ++at) {
      example.tokens[at] = draws.id_in(0, config_.vocab);
    }
  }
  std::vector<double> weights = weights_;
  for (std::size_t k = 0; k < pairs; ++k) {
    example.tokens[2 * k] = keys[k];
    example.tokens[2 * k + 1] = values[k];
    const std::size_t at = 2 * pairs + 2 * draw_weighted(draws, weights);
    example.tokens[at] = keys[k];
    example.targets[at] = values[k];
  }
}

std::string MqarSource::summary() const {
  return cat("mqar: ", size_, " examples of ", seq_len_, " tokens with ", config_.pairs,
             " pairs, vocabulary ", config_.vocab);
}

std::string MqarSource::fingerprint() const {
  return hash_hex(xxh3_64(cat(summary(), ", ", stream_, ", power ", config_.power, ", random ",
                              config_.random_non_queries, ", seed ", seed_)));
}

}  // namespace fovea::data
