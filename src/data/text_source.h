#pragma once
// Windows of a corpus for a byte-level language model.

#include <cstdint>
#include <string>

#include "data/corpus.h"
#include "data/source.h"

namespace fovea::data {

// Token id = byte (data.md 2.2).
constexpr int kByteVocab = 256;

enum class Cut {
  // Training: windows of T inputs and T targets, one byte on, with stride T. The first one starts
  // at a
  // place that every epoch draws anew from (seed, epoch), so that the cuts differ; the bytes before
  // the
  // first and behind the last window have their turn in other epochs.
  shifted,
  // Evaluation: window w sees bytes [wT, wT + T). Every byte of the split but the first is scored
  // exactly once; the last window is shorter.
  fixed,
};

// Windows cross the borders of documents but never of splits.
class TextSource final : public Source {
 public:
  // Throws IoError if the corpus is smaller than a window (shifted: T + 1 bytes; fixed: 2).
  TextSource(Corpus corpus, int seq_len, Cut cut, std::uint64_t seed);

  std::int64_t size() const override { return size_; }
  int seq_len() const override { return seq_len_; }
  void get(std::int64_t i, std::int64_t epoch, Example& example) const override;
  std::int64_t target_tokens(std::int64_t i, std::int64_t epoch) const override;
  std::string summary() const override;
  const Corpus& corpus() const { return corpus_; }

 private:
  std::int64_t shift(std::int64_t epoch) const;

  Corpus corpus_;
  int seq_len_;
  Cut cut_;
  std::uint64_t seed_;
  std::int64_t size_;
};

}  // namespace fovea::data
