#pragma once
// The windows of a split as examples, for evaluation.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/eval_protocol.h"
#include "data/eval_text.h"
#include "data/eval_windows.h"
#include "data/source.h"

namespace fovea::data {

// The text that scored tokens stand for. A character is that of the token with its first byte; as
// in TextCounts, a byte that is not UTF-8 is one.
struct ScoredText {
  std::int64_t bytes = 0, characters = 0;
};

class EvalSource final : public Source {
 public:
  // Throws IoError: a split without a target; ConfigError: a prefix or documents where the data has
  // none, a stride above the context.
  EvalSource(EvalText text, EvalProtocol protocol, Pack pack);

  std::int64_t size() const override { return windows_.size(); }
  int seq_len() const override { return static_cast<int>(windows_.cut().context); }
  // The window's tokens; the targets that an earlier window scored are kIgnored. `epoch` is
  // nothing. Throws IoError for a token outside the vocabulary.
  void get(std::int64_t i, std::int64_t epoch, Example& example) const override;
  std::int64_t target_tokens(std::int64_t i, std::int64_t epoch) const override;
  std::string summary() const override;
  std::string fingerprint() const override;
  std::optional<TextCounts> counts() const override { return text_.counts(); }

  const EvalText& text() const { return text_; }
  const EvalWindows& windows() const { return windows_; }
  std::optional<std::int32_t> prefix() const { return prefix_; }
  bool by_document() const { return by_document_; }

  // Of the scored tokens of the first `windows` windows; nothing where nobody knows. All windows:
  // the text's own counts less the first token of each stream without a prefix. Fewer: the tokens'
  // own bytes, if those of the whole split add up to the text's (byte, BPE and character
  // tokenizers, unless something was unknown to them).
  std::optional<ScoredText> scored(std::int64_t windows) const;

  // Where the targets of a window come from.
  struct Target {
    std::int64_t document;  // in the split, from 0; 0 where documents are not known
    std::int64_t place;     // of the token in its document
    std::int32_t id;
  };
  // Appends the scored targets of a window in order.
  void targets_of(std::int64_t window, std::vector<Target>& to) const;
  std::int64_t documents() const { return documents_; }  // 0 where they are not known
  // Text of a document: what was counted, else, where the tokens' bytes are known, bytes and
  // characters alone (`words` is 0 then). Without the bytes and characters of a first token that is
  // not scored, so that documents add up to scored(size()).
  std::optional<TextCounts> document_counts(std::int64_t document) const;

 private:
  struct Stream {
    std::size_t part;
    std::int64_t begin, end;  // in the part's tokens
    std::int64_t document;    // the first one in it
  };
  static bool splits_documents(const EvalText& text, const EvalProtocol& protocol, Pack pack);
  static std::vector<Stream> streams_of(const EvalText& text, bool by_document);
  void measure_pieces();
  ScoredText measured(std::size_t part, std::int64_t begin, std::int64_t end) const;
  std::vector<std::int32_t> sequence(const EvalWindows::Window& window, std::int64_t from) const;

  EvalText text_;
  bool by_document_;
  std::vector<Stream> streams_;
  std::optional<std::int32_t> prefix_;
  EvalWindows windows_;
  std::int64_t documents_ = 0;
  std::vector<std::string> pieces_;  // by id; empty where the tokenizer is not known
  bool exact_ = false;               // the pieces add up to the text
};

}  // namespace fovea::data
