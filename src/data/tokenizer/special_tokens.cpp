#include "data/tokenizer/special_tokens.h"

#include <algorithm>

#include "core/error.h"

namespace fovea::data {

void SpecialTokens::add(std::string_view text, std::int32_t id) {
  FOVEA_ASSERT(!text.empty());
  auto& tokens = by_first_byte_[static_cast<unsigned char>(text[0])];
  const auto place = std::find_if(tokens.begin(), tokens.end(), [&](const Token& other) {
    return other.text.size() < text.size();
  });
  tokens.insert(place, {std::string(text), id});
  longest_ = std::max(longest_, text.size());
}

SpecialTokens::Found SpecialTokens::find(std::string_view text, std::size_t from) const {
  if (empty()) return {text.size(), 0, -1};
  for (std::size_t at = from; at < text.size(); ++at) {
    for (const Token& token : by_first_byte_[static_cast<unsigned char>(text[at])]) {
      if (text.substr(at).starts_with(token.text)) return {at, token.text.size(), token.id};
    }
  }
  return {text.size(), 0, -1};
}

}  // namespace fovea::data
