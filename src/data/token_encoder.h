#pragma once
// Documents become tokens: long ones in pieces, several pieces at a time.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/parallel.h"
#include "data/documents.h"
#include "data/text_counts.h"
#include "data/token_array.h"
#include "data/tokenizer/tokenizer.h"

namespace fovea::data {

// What a document has besides its text: "<|endoftext|>" behind it (BPE, if the vocabulary has it;
// data.md 3.8), a begin of text before it (llama2c). Byte and char have neither; word ends every
// line already.
struct DocumentMarks {
  std::optional<std::int32_t> begin, end;
};
DocumentMarks document_marks(const Tokenizer& tokenizer);

// The ids are those of whole documents: a document is cut only where Tokenizer::safe_cut says that
// it makes no difference. So neither `jobs` nor how the text arrives shows. Borrows everything.
class TokenEncoder final : public TextSink {
 public:
  TokenEncoder(const Tokenizer& tokenizer, int jobs, TokenSink& to);
  void begin_document(const std::string& where, std::uint64_t left_out) override;
  void text(std::string_view piece) override;
  void end_document() override;
  // Passes on what waits. Nothing may follow.
  void finish();
  const TextCounts& counts() const { return counter_.counts(); }

 private:
  struct Piece {
    std::string text;
    bool begins = false, ends = false;  // a document
    std::string where;                  // the document is from, "" where nobody says
    std::uint64_t before = 0;           // bytes of the document
    std::vector<std::int32_t> ids;
    std::optional<NotInVocabulary> fault;
  };
  void put(std::string text, bool ends);
  void encode();
  static void encode(const Tokenizer& tokenizer, Piece& piece);

  const Tokenizer& tokenizer_;
  TokenSink& to_;
  DocumentMarks marks_;
  ThreadPool threads_;
  TextCounter counter_;
  std::string waiting_;       // of the open document
  std::size_t searched_ = 0;  // no cut is in waiting_[0, searched_)
  bool begins_ = true;        // the next piece is a document's first
  std::string where_;
  std::uint64_t before_ = 0;  // bytes of the open document before those that wait
  std::vector<Piece> pieces_;
  std::size_t bytes_ = 0;  // in pieces_
};

}  // namespace fovea::data
