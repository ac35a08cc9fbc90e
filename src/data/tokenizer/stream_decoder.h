#pragma once
// Ids back to text as they come: in pieces, printable at any time, up to a stop text.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/tokenizer.h"

namespace fovea::data {

// Decodes ids that arrive in pieces: the texts, one behind the other, are that of the whole. The
// text of an id depends on at most the id before it, in every tokenizer.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  // Throws IoError for an id outside the vocabulary.
  std::string add(std::span<const std::int32_t> ids);
  // A new text follows.
  void restart() { last_.clear(); }

 private:
  const Tokenizer& tokenizer_;
  std::vector<std::int32_t> last_;  // the id before, if there is one
};

// Holds a text back as long as more of it may change what is to be shown: an unfinished UTF-8
// sequence, and what may become a stop text. The text ends before the first byte at which a stop
// text is complete; of several, before the longest. How the text was cut makes no difference.
class StopText {
 public:
  // Empty stops are none.
  explicit StopText(std::vector<std::string> stops);
  // Takes more of the text and returns what is certain by now. Nothing once stopped().
  std::string add(std::string_view text);
  // What is still held back: the text ends here.
  std::string finish();
  bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace fovea::data
