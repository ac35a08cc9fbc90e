#pragma once
// Order-1 Markov text: generated, with a loss floor that is known exactly. For smoke tests.

#include <cstdint>
#include <string>
#include <vector>

#include "data/source.h"

namespace fovea::data {

// Every state has four distinct successors, drawn from the seed, taken with probability 1/2, 1/4,
// 1/8 and 1/8. Training and held-out examples share the table and nothing else.
class MarkovSource final : public Source {
 public:
  // Throws ConfigError if vocab < 4 or there are no examples.
  MarkovSource(const MarkovConfig& config, int seq_len, Split split, std::uint64_t seed);

  std::int64_t size() const override { return size_; }
  int seq_len() const override { return seq_len_; }
  void get(std::int64_t i, std::int64_t epoch, Example& example) const override;
  std::int64_t target_tokens(std::int64_t, std::int64_t) const override { return seq_len_; }
  std::string summary() const override;
  std::string fingerprint() const override;

  // The successors of a state, likeliest first.
  const std::int32_t* successors(std::int32_t state) const {
    return &table_[static_cast<std::size_t>(state) * 4];
  }
  // Entropy of the next token given the present one, in nats: no model does better on average.
  static double entropy();

 private:
  int vocab_, seq_len_;
  std::int64_t size_;
  std::uint64_t seed_;
  const char* stream_;
  std::vector<std::int32_t> table_;  // [vocab, 4]
};

}  // namespace fovea::data
