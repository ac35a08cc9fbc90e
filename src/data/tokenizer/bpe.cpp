#include "data/tokenizer/bpe.h"

#include <algorithm>
#include <bit>

#include "core/error.h"
#include "core/text.h"
#include "data/hash.h"
#include "data/quote.h"

namespace fovea::data {

namespace {

constexpr std::size_t kLongestPiece = std::size_t{1} << 24;
constexpr std::string_view kEndOfText = "<|endoftext|>";

}  // namespace

// Pieces of the text that were merged not long ago. It keeps places in the text and in `ids`, not
// copies, so it lives as long as one encode_append().
class BpeTokenizer::Recent {
 public:
  explicit Recent(std::size_t text_bytes)
      : slots_(text_bytes < kWorthwhile
                   ? 0
                   : std::bit_floor(std::min(text_bytes / 64, std::size_t{1} << 14))) {}

  // Appends the ids of an equal piece, if there is one; otherwise remembers this one, whose ids the
  // caller appends next with done().
  bool copy(std::string_view piece, std::vector<std::int32_t>& ids) {
    if (slots_.empty()) return false;
    Slot& slot = slots_[piece_hash(piece) >> 40 & (slots_.size() - 1)];
    if (slot.piece == piece && slot.end > slot.begin) {
      // Not insert(): its range may not lie in the vector itself.
      for (std::size_t i = slot.begin; i < slot.end; ++i)
        ids.push_back(std::int32_t{ids[i]});
      return true;
    }
    slot = {piece, ids.size(), 0};
    open_ = &slot;
    return false;
  }
  void done(const std::vector<std::int32_t>& ids) {
    if (open_ != nullptr) open_->end = ids.size();
    open_ = nullptr;
  }

 private:
  static constexpr std::size_t kWorthwhile = 4096;  // bytes of text
  struct Slot {
    std::string_view piece;
    std::size_t begin = 0, end = 0;  // in ids
  };
  std::vector<Slot> slots_;
  Slot* open_ = nullptr;
};

BpeTokenizer::BpeTokenizer(BpeVocabulary vocabulary, const TokenizerOptions& options)
    : vocabulary_(std::move(vocabulary)) {
  using Token = BpeVocabulary::Token;
  BpeVocabulary& v = vocabulary_;
  for (std::int32_t id = 0; id < v.tokens.size(); ++id) {
    const Token type = v.types[static_cast<std::size_t>(id)];
    const std::string_view bytes = v.tokens[id];
    if (bytes == kEndOfText) end_of_text_ = id;
    if (type == Token::added || (type == Token::special && options.allow_special))
      specials_.add(bytes, id);
    if (type == Token::ordinary &&
        (v.whole_piece == BpeVocabulary::WholePiece::is_token || merges_to_itself(id))) {
      v.tokens.index(id);
    }
  }
}

bool BpeTokenizer::merges_to_itself(std::int32_t id) const {
  std::vector<std::int32_t> ids;
  for (const char byte : vocabulary_.tokens[id]) {
    ids.push_back(vocabulary_.byte_tokens[static_cast<unsigned char>(byte)]);
    if (ids.back() < 0) return false;
  }
  return vocabulary_.merges.apply(ids) == 1 && ids[0] == id;
}

std::string BpeTokenizer::fingerprint() const {
  Xxh3 hash;
  const auto put = [&](std::int32_t value) { hash.update(&value, sizeof value); };
  hash.update("bpe gpt2");
  for (std::int32_t id = 0; id < vocab_size(); ++id) {
    const std::string_view bytes = vocabulary_.tokens[id];
    put(static_cast<std::int32_t>(bytes.size()));
    hash.update(bytes);
    put(static_cast<std::int32_t>(vocabulary_.types[static_cast<std::size_t>(id)]));
  }
  for (const std::int32_t result : vocabulary_.merge_results)
    put(result);
  return hash.hex();
}

void BpeTokenizer::encode_append(std::string_view text, std::vector<std::int32_t>& ids) const {
  Recent recent(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const SpecialTokens::Found found = specials_.find(text, at);
    encode_ordinary(text.substr(at, found.at - at), ids, recent);
    if (found.id >= 0) ids.push_back(found.id);
    at = found.at + found.bytes;
  }
}

void BpeTokenizer::encode_ordinary(std::string_view text, std::vector<std::int32_t>& ids,
                                   Recent& recent) const {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = split_.end_of_piece(text, at);
    const std::string_view piece = text.substr(at, end - at);
    at = end;
    const std::int32_t whole = vocabulary_.tokens.find(piece);
    if (whole >= 0) {
      ids.push_back(whole);
    } else if (!recent.copy(piece, ids)) {
      merge_piece(piece, ids);
      recent.done(ids);
    }
  }
}

void BpeTokenizer::merge_piece(std::string_view piece, std::vector<std::int32_t>& ids) const {
  if (piece.size() > kLongestPiece) {
    throw IoError(cat(vocabulary_.path, ": cannot encode ", piece.size(),
                      " bytes without a break, beginning ", quote(piece, 20), "; at most ",
                      kLongestPiece));
  }
  const std::size_t begin = ids.size();
  for (const char c : piece) {
    const auto byte = static_cast<unsigned char>(c);
    std::int32_t id = vocabulary_.byte_tokens[byte];
    if (id < 0 && !vocabulary_.unknown) {
      throw IoError(cat(vocabulary_.path, ": the vocabulary has no token for the byte ",
                        quote({&c, 1}), " (", int{byte}, ") and no unknown token"));
    }
    ids.push_back(id < 0 ? *vocabulary_.unknown : id);
  }
  ids.resize(begin + vocabulary_.merges.apply(std::span(ids).subspan(begin)));
}

std::string BpeTokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  for (const std::int32_t id : ids) {
    check_id(id);
    text += vocabulary_.tokens[id];
  }
  return text;
}

std::string BpeTokenizer::piece(std::int32_t id) const {
  check_id(id);
  return std::string(vocabulary_.tokens[id]);
}

std::size_t BpeTokenizer::safe_cut(std::string_view text, std::size_t from) const {
  // Near the end a special token may still be incomplete.
  const std::size_t margin = specials_.longest();
  for (std::size_t at = text.size() > margin ? text.size() - margin : 0;
       at-- > std::max<std::size_t>(from, 1);) {
    if (!split_.always_ends(text, at)) continue;
    if (specials_.empty()) return at;
    const std::size_t before = at > margin ? at - margin : 0;
    SpecialTokens::Found found = specials_.find(text, before);
    while (found.at + found.bytes <= at && found.id >= 0)
      found = specials_.find(text, found.at + 1);
    if (found.at >= at) return at;
  }
  return 0;
}

}  // namespace fovea::data
