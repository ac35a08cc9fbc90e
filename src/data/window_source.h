#pragma once
// Windows of a split's tokens, for language models.

#include <cstdint>
#include <string>

#include "data/source.h"
#include "data/token_split.h"

namespace fovea::data {

enum class Cut {
  // Training: windows of T inputs and T targets, one token on, with stride T. The first one starts
  // at a place that every epoch draws anew from (seed, epoch), so that the cuts differ; the tokens
  // before the first and behind the last window have their turn in other epochs.
  shifted,
  // Evaluation: window w sees tokens [wT, wT + T). Every token of the split but the first is a
  // target exactly once; the last window is shorter.
  fixed,
};

// Windows cross the borders of documents but never of splits. Pack::documents: in each window a
// document's tokens are a segment and have positions from 0; a document's last token, whose target
// would be the next document's first one, is not scored.
class WindowSource final : public Source {
 public:
  // Throws IoError if the split is smaller than a window (shifted: T + 1 tokens; fixed: 2);
  // ConfigError for Pack::documents of token files that have no documents.
  WindowSource(TokenSplit split, int seq_len, Cut cut, Pack pack, std::uint64_t seed);

  std::int64_t size() const override { return size_; }
  int seq_len() const override { return seq_len_; }
  // Throws IoError for a token outside the vocabulary.
  void get(std::int64_t i, std::int64_t epoch, Example& example) const override;
  std::int64_t target_tokens(std::int64_t i, std::int64_t epoch) const override;
  std::string summary() const override;
  std::string fingerprint() const override { return split_.fingerprint; }
  bool has_segments() const override { return pack_ == Pack::documents; }
  std::optional<TextCounts> counts() const override;
  const TokenSplit& split() const { return split_; }

 private:
  struct Window {
    std::int64_t first, count;  // of the inputs
  };
  Window window(std::int64_t i, std::int64_t epoch) const;
  void cut_at_documents(std::int64_t first, Example& example) const;

  TokenSplit split_;
  int seq_len_;
  Cut cut_;
  Pack pack_;
  std::uint64_t seed_;
  std::int64_t size_;
};

}  // namespace fovea::data
