#pragma once
// Needle in a haystack: keys with values somewhere among fillers, and the value of one key to be
// recalled at the end.   Source: elsaa.md 6.2 (layout elsaa), data.md 6.1 (layout marked).

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/existing.h"
#include "data/source.h"

namespace fovea::data {

// Layout elsaa, T tokens: fillers 0..49, keys 50..113, values 114..177, SEP 178. F = T - 2n - 2
// uniform fillers with n pairs of key and value among them, then SEP and the key of one pair,
// uniform. Keys are distinct, values independent. A pair has an offset, the number of fillers
// before it: uniform in [floor(.05 F), floor(.95 F)], or floor(depth F) where a depth is given;
// equal ones keep the order of drawing.
//   generator reference: a value follows from its key, the input ends with SEP (one filler more)
//   and the target is the key, and a single pair stands before the last two fillers. With several
//   the offsets are the corrected generator's.
// Layout marked, T tokens: 0 PAD, 1 BOS, 2 NEEDLE, 3 QUERY, keys 4..67, values 68..117, distractors
// 118..373. BOS, T - 6 uniform distractors, among them NEEDLE, key, value at a uniform gap, then
// QUERY, key. Each decoy is such a triple with another key, at a gap of its own, instead of three
// distractors; equal gaps keep the order of drawing, the needle's first.
// The one target, at the last position, is the value (reference: the key).
class NiahSource final : public Source {
 public:
  // Which needles: where training and validation draw depths, the test of elsaa has one of its own.
  struct Place {
    int length = 0;
    double depth = -1;  // of elsaa's needles; negative: drawn
  };
  // Throws ConfigError for settings that no example can meet. Training draws from the stream
  // "niah.train", validation from "niah.validation", the test from "niah.test.LENGTH[.DEPTH]".
  NiahSource(const NiahConfig& config, Place place, Split split, std::uint64_t seed);

  std::int64_t size() const override { return size_; }
  int seq_len() const override { return place_.length; }
  // Example::group of the test: its depth, or the tenth of the gaps that the needle's lies in, as
  // "0.25". Of training and validation: none.
  void get(std::int64_t i, std::int64_t epoch, Example& example) const override;
  std::int64_t target_tokens(std::int64_t, std::int64_t) const override { return 1; }
  std::string summary() const override;
  std::string fingerprint() const override;

 private:
  double put_elsaa(std::int64_t i, std::vector<std::int32_t>& tokens, std::int32_t& target) const;
  double put_marked(std::int64_t i, std::vector<std::int32_t>& tokens, std::int32_t& target) const;

  NiahConfig config_;
  Place place_;
  bool test_;
  std::int64_t size_;
  std::uint64_t seed_;
  std::string stream_;
};

// The ids of values: [begin, end).
struct IdRange {
  int begin = 0, end = 0;
};
IdRange niah_values(const NiahConfig& config);
int niah_vocab(const NiahConfig& config);
// The shortest sequence that has room for the needles.
int niah_least_length(const NiahConfig& config);

// The test's sources, longest first, so that what does not fit fails at once: one for each of
// test_lengths (seq_len if there are none) and, of elsaa, each depth. Throws ConfigError.
std::vector<std::unique_ptr<Source>> niah_test(const NiahConfig& config, int seq_len,
                                               std::uint64_t seed);

// Writes `count` examples as JSON lines {"tokens":[...],"answer":ID,"depth":D}: examples 0 ..
// count-1 of the split ("train", "validation", "test") that a run with this seed sees; a depth only
// in the test. The file appears whole or not at all. Throws ConfigError and IoError as make_mqar.
void make_niah(const NiahConfig& config, NiahSource::Place place, std::string_view split,
               std::int64_t count, std::uint64_t seed, const std::string& out,
               Existing existing = Existing::refuse);

}  // namespace fovea::data
