#pragma once
// Letters, numbers and white space of Unicode, as PCRE2 knows them.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fovea::data {

enum class CharClass : std::uint8_t { other, letter, number, space };

// General categories L and N, and the property White_Space. Code points above U+3FFFF are `other`:
// Unicode has assigned no letter there.
class UnicodeClasses {
 public:
  UnicodeClasses();  // asks PCRE2 once; a few milliseconds
  CharClass of(std::uint32_t code_point) const {
    return code_point < classes_.size() ? classes_[code_point] : CharClass::other;
  }

 private:
  std::vector<CharClass> classes_;
};

// A character of a text; a byte that begins no valid UTF-8 sequence is one of length 1 and of value
// kInvalid.
struct Character {
  std::uint32_t code_point = 0;
  std::size_t bytes = 1;
};
constexpr std::uint32_t kInvalid = 0xFFFFFFFF;
Character character_at(std::string_view text, std::size_t at);  // at < text.size()

// Appends a code point (no surrogate, at most U+10FFFF) as UTF-8.
void append_utf8(std::string& to, std::uint32_t code_point);

}  // namespace fovea::data
