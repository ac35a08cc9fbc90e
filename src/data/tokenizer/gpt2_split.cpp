#include "data/tokenizer/gpt2_split.h"

namespace fovea::data {

namespace {

// Bytes of the contraction that begins at `from`, or 0.
std::size_t contraction(std::string_view text, std::size_t from) {
  if (from + 1 >= text.size()) return 0;
  const char a = text[from + 1];
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
  const char b = from + 2 < text.size() ? text[from + 2] : '\0';
  return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

}  // namespace

Gpt2Split::Gpt2Split() {
  for (std::uint32_t byte = 0; byte < ascii_.size(); ++byte)
    ascii_[byte] = unicode_.of(byte);
}

Gpt2Split::At Gpt2Split::class_at(std::string_view text, std::size_t at) const {
  const auto byte = static_cast<unsigned char>(text[at]);
  if (byte < 0x80) return {ascii_[byte], 1};
  const Character c = character_at(text, at);
  return {unicode_.of(c.code_point), c.bytes};
}

// Valid UTF-8 reads the same from both ends: at most one valid sequence ends at `at`.
Gpt2Split::At Gpt2Split::class_before(std::string_view text, std::size_t at) const {
  for (std::size_t bytes = 1; bytes <= 4 && bytes <= at; ++bytes) {
    const Character c = character_at(text, at - bytes);
    if (c.bytes == bytes && c.code_point != kInvalid) return {unicode_.of(c.code_point), bytes};
  }
  return {CharClass::other, 1};
}

std::size_t Gpt2Split::end_of_run(std::string_view text, std::size_t from, CharClass what) const {
  std::size_t at = from;
  while (at < text.size()) {
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte < 0x80) {
      if (ascii_[byte] != what) break;
      ++at;
    } else {
      const At next = class_at(text, at);
      if (next.what != what) break;
      at += next.bytes;
    }
  }
  return at;
}

// White space before text leaves its last character to what follows (a space joins it, another one
// stands alone), unless it is all there is.
std::size_t Gpt2Split::end_of_space(std::string_view text, std::size_t from) const {
  const std::size_t end = end_of_run(text, from, CharClass::space);
  if (end == text.size()) return end;
  const std::size_t last = end - class_before(text, end).bytes;
  return last > from ? last : end;
}

std::size_t Gpt2Split::end_of_piece(std::string_view text, std::size_t from) const {
  if (text[from] == '\'') {
    const std::size_t bytes = contraction(text, from);
    if (bytes > 0) return from + bytes;
  }
  std::size_t at = from;
  if (text[from] == ' ' && from + 1 < text.size()) ++at;
  const At first = class_at(text, at);
  if (first.what == CharClass::space) return end_of_space(text, from);
  return end_of_run(text, at + first.bytes, first.what);
}

// Between two classes a piece always ends, but for a space before text and an apostrophe before a
// letter. That an invalid sequence goes on behind the text's end does not matter for `before`,
// which ends where a valid character begins.
bool Gpt2Split::always_ends(std::string_view text, std::size_t at) const {
  if (character_at(text, at).code_point == kInvalid) return false;
  const CharClass before = class_before(text, at).what, after = class_at(text, at).what;
  return before != after && before != CharClass::space &&
         (text[at - 1] != '\'' || after != CharClass::letter);
}

}  // namespace fovea::data
