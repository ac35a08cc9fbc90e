#include "data/tokenizer/tokenizer.h"

#include <utility>

#include "core/error.h"
#include "core/text.h"

namespace fovea::data {

NotInVocabulary::NotInVocabulary(std::string before, std::size_t byte, std::string after,
                                 const std::string& text)
    : IoError(cat(before, text, " at byte ", byte, after)),
      before_(std::move(before)),
      after_(std::move(after)),
      byte_(byte) {}

NotInVocabulary NotInVocabulary::behind(std::size_t bytes, const std::string& text) const {
  return {before_, bytes + byte_, after_, text};
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<std::int32_t> ids;
  encode_append(text, ids);
  return ids;
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  for (const std::int32_t id : ids)
    text += piece(id);
  return text;
}

void Tokenizer::check_id(std::int32_t id) const {
  if (id < 0 || id >= vocab_size()) {
    throw IoError(
        cat("token id ", id, " is outside the ", kind(), " vocabulary [0, ", vocab_size(), ")"));
  }
}

void StreamEncoder::add(std::string_view text, std::vector<std::int32_t>& ids) {
  waiting_.append(text);
  const std::size_t cut = tokenizer_.safe_cut(waiting_, searched_);
  if (cut > 0) {
    encode(std::string_view(waiting_).substr(0, cut), ids);
    waiting_.erase(0, cut);
  }
  // A cut may need a few more bytes to be known as one.
  constexpr std::size_t kUndecided = 256;
  searched_ = waiting_.size() > kUndecided ? waiting_.size() - kUndecided : 0;
}

void StreamEncoder::encode(std::string_view text, std::vector<std::int32_t>& ids) {
  try {
    tokenizer_.encode_append(text, ids);
  } catch (const NotInVocabulary& e) {
    throw e.behind(encoded_);
  }
  encoded_ += text.size();
}

void StreamEncoder::finish(std::vector<std::int32_t>& ids) {
  encode(waiting_, ids);
  waiting_.clear();
  searched_ = 0;
  encoded_ = 0;
}

}  // namespace fovea::data
