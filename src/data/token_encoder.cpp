#include "data/token_encoder.h"

#include <utility>

#include "core/text.h"

namespace fovea::data {

namespace {

constexpr std::size_t kPiece = std::size_t{1} << 19;  // bytes of text
constexpr std::size_t kUndecided = 256;  // a cut may need a few more bytes to be known as one

}  // namespace

DocumentMarks document_marks(const Tokenizer& tokenizer) {
  return {tokenizer.begin_of_text(),
          tokenizer.kind() == "bpe" ? tokenizer.end_of_text() : std::nullopt};
}

TokenEncoder::TokenEncoder(const Tokenizer& tokenizer, int jobs, TokenSink& to)
    : tokenizer_(tokenizer), to_(to), marks_(document_marks(tokenizer)), threads_(jobs) {}

void TokenEncoder::begin_document(const std::string& where, std::uint64_t left_out) {
  where_ = where;
  before_ = left_out;
}

void TokenEncoder::text(std::string_view piece) {
  counter_.add(piece);
  waiting_ += piece;
  if (waiting_.size() < kPiece) return;
  const std::size_t cut = tokenizer_.safe_cut(waiting_, searched_);
  if (cut > 0) {
    std::string rest = waiting_.substr(cut);
    waiting_.resize(cut);
    put(std::exchange(waiting_, std::move(rest)), false);
  }
  searched_ = waiting_.size() > kUndecided ? waiting_.size() - kUndecided : 0;
}

void TokenEncoder::end_document() {
  counter_.end_document();
  put(std::exchange(waiting_, {}), true);
  searched_ = 0;
  where_.clear();
  before_ = 0;
}

void TokenEncoder::put(std::string text, bool ends) {
  const std::size_t size = text.size();
  bytes_ += size;
  pieces_.push_back({std::move(text), std::exchange(begins_, ends), ends, where_, before_, {}, {}});
  before_ += size;
  const auto jobs = static_cast<std::size_t>(threads_.threads());
  if (bytes_ >= jobs * kPiece || pieces_.size() >= jobs * 4096) encode();
}

// Which of several faults is told must not depend on the threads: the first one is.
void TokenEncoder::encode(const Tokenizer& tokenizer, Piece& piece) {
  try {
    tokenizer.encode_append(piece.text, piece.ids);
  } catch (const NotInVocabulary& e) {
    piece.fault = piece.where.empty() ? e.behind(piece.before)
                                      : e.behind(piece.before, cat("the text of ", piece.where));
  }
}

void TokenEncoder::encode() {
  struct Work {
    const Tokenizer& tokenizer;
    std::vector<Piece>& pieces;
  } work{tokenizer_, pieces_};
  threads_.run(
      static_cast<std::int64_t>(pieces_.size()),
      [](void* context, std::int64_t i) {
        auto& [tokenizer, pieces] = *static_cast<Work*>(context);
        encode(tokenizer, pieces[static_cast<std::size_t>(i)]);
      },
      &work);
  for (const Piece& piece : pieces_) {
    if (piece.fault) throw NotInVocabulary(*piece.fault);
    if (piece.begins && marks_.begin) to_.tokens({&*marks_.begin, 1});
    to_.tokens(piece.ids);
    if (piece.ends && marks_.end) to_.tokens({&*marks_.end, 1});
    if (piece.ends) to_.end_document();
  }
  pieces_.clear();
  bytes_ = 0;
}

void TokenEncoder::finish() {
  encode();
}

}  // namespace fovea::data
