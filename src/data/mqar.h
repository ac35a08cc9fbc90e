#pragma once
// Multi-query associative recall: K key-value pairs, then each key once more, where the model must
// answer with the value.   Source: Arora et al., "Zoology" (2023), appendix; data.md 6.2.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/existing.h"
#include "data/source.h"

namespace fovea::data {

// An example of N tokens: k1 v1 ... kK vK, then (N - 2K)/2 slots of two tokens; a queried key
// stands first in its slot, everything else is 0 (or a random id, which may be a key's).
//   keys    distinct, uniform in [1, V/2)
//   values  distinct, uniform in [V/2, V)
//   slots   for k1, k2, ... in turn: drawn without replacement, slot x = 1, 2, ... with weight a
//   x^(a-1) targets the key's value where the key is queried, kIgnored everywhere else
class MqarSource final : public Source {
 public:
  // Throws ConfigError unless N is even, 1 <= K, 4K <= N, V > N, a > 0 and there are examples.
  // Training draws from the stream "mqar.train", validation and test both from "mqar.test".
  MqarSource(const MqarConfig& config, int seq_len, Split split, std::uint64_t seed);

  std::int64_t size() const override { return size_; }
  int seq_len() const override { return seq_len_; }
  void get(std::int64_t i, std::int64_t epoch, Example& example) const override;
  std::int64_t target_tokens(std::int64_t, std::int64_t) const override { return config_.pairs; }
  std::string summary() const override;
  std::string fingerprint() const override;

 private:
  MqarConfig config_;
  int seq_len_;
  std::int64_t size_;
  std::uint64_t seed_;
  const char* stream_;
  std::vector<double> weights_;  // of slot x at [x - 1]
};

// Writes `count` examples as JSON lines {"tokens":[...],"targets":[...]}, targets -1 where not
// scored: examples 0 .. count-1 of the split ("train" or "test") that training with this seed sees.
// The file appears whole or not at all. Throws ConfigError as MqarSource does and for an unknown
// split; IoError if `out` exists and may not be replaced, or cannot be written.
void make_mqar(const MqarConfig& config, int seq_len, std::string_view split, std::int64_t count,
               std::uint64_t seed, const std::string& out, Existing existing = Existing::refuse);

}  // namespace fovea::data
