#pragma once
// GPT-2's pre-tokenizer: which bytes of a text may end up in one token.

#include <array>
#include <cstddef>
#include <string_view>

#include "data/tokenizer/unicode_classes.h"

namespace fovea::data {

// The leftmost-first alternatives 's 't 're 've 'm 'll 'd, " ?\p{L}+", " ?\p{N}+",
// " ?[^\s\p{L}\p{N}]+", "\s+(?!\S)", "\s+" by hand: ASCII through a table of bytes, the rest
// through UnicodeClasses. A byte that is not UTF-8 is of class `other`, so every byte is in a
// piece. Source: data.md 2.3.
class Gpt2Split {
 public:
  Gpt2Split();

  // Where the piece that begins at `from` ends; from < text.size().
  std::size_t end_of_piece(std::string_view text, std::size_t from) const;

  // Whether a piece ends at `at` in this text and in every text with the same bytes up to and
  // including the character that begins at `at`; 0 < at < text.size(). May say no although one
  // does.
  bool always_ends(std::string_view text, std::size_t at) const;

 private:
  struct At {
    CharClass what = CharClass::other;
    std::size_t bytes = 1;
  };
  At class_at(std::string_view text, std::size_t at) const;
  At class_before(std::string_view text, std::size_t at) const;
  std::size_t end_of_run(std::string_view text, std::size_t from, CharClass what) const;
  std::size_t end_of_space(std::string_view text, std::size_t from) const;

  UnicodeClasses unicode_;
  std::array<CharClass, 128> ascii_;
};

}  // namespace fovea::data
