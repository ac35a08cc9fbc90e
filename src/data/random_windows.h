#pragma once
// nanoGPT's estimate of a loss: windows that begin anywhere, drawn anew each time. Source: data.md
// 3.8.

#include <cstdint>
#include <string>

#include "data/eval_text.h"
#include "data/source.h"

namespace fovea::data {

// nanoGPT's batch: what "200 random batches" are made of, whatever is computed at once.
inline constexpr std::int64_t kRandomBatch = 12;

// Windows of `context` inputs and as many targets. The first input of window i is drawn from all
// places that leave room, by a stream that depends on nothing, so that runs can be compared.
class RandomWindows final : public Source {
 public:
  // Borrows the text. Throws ConfigError for a mix, IoError for fewer than context + 1 tokens.
  RandomWindows(const EvalText& text, std::int64_t context, std::int64_t windows);

  std::int64_t size() const override { return windows_; }
  int seq_len() const override { return static_cast<int>(context_); }
  void get(std::int64_t i, std::int64_t epoch, Example& example) const override;
  std::int64_t target_tokens(std::int64_t, std::int64_t) const override { return context_; }
  std::string summary() const override;
  std::string fingerprint() const override { return part_.split.fingerprint; }

 private:
  const EvalPart& part_;
  std::int64_t context_, windows_;
};

}  // namespace fovea::data
