#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "core/random.h"
#include "data/tokenizer/gpt2_split.h"

using namespace fovea;
using namespace fovea::data;

namespace {

std::vector<std::string> split(std::string_view text) {
  static const Gpt2Split splitter;
  std::vector<std::string> pieces;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = splitter.end_of_piece(text, at);
    REQUIRE(end > at);
    REQUIRE(end <= text.size());
    pieces.emplace_back(text.substr(at, end - at));
    at = end;
  }
  return pieces;
}

using Pieces = std::vector<std::string>;

}  // namespace

TEST_CASE("contractions, words, numbers and signs are pieces of their own") {
  CHECK(split("I've 12 dogs' toys!?") == Pieces{"I", "'ve", " 12", " dogs", "'", " toys", "!?"});
  CHECK(split("a1b") == Pieces{"a", "1", "b"});
  CHECK(split("'S 's") == Pieces{"'", "S", " '", "s"});
  CHECK(split("it'st''s'r") == Pieces{"it", "'s", "t", "''", "s", "'", "r"});
}

TEST_CASE("white space leaves its last character to the text behind it") {
  CHECK(split("a  b") == Pieces{"a", " ", " b"});
  CHECK(split("a\n\nb") == Pieces{"a", "\n", "\n", "b"});
  CHECK(split("a \u3000\u3000b") == Pieces{"a", " \u3000", "\u3000", "b"});
  CHECK(split("a  ") == Pieces{"a", "  "});
  CHECK(split(" ") == Pieces{" "});
}

TEST_CASE("white space is what Unicode calls so") {
  for (const std::string space : {"\t", "\v", "\f", "\r", "\u0085", "\u00A0", "\u1680", "\u2003",
                                  "\u2028", "\u2029", "\u202F", "\u205F", "\u3000"}) {
    CAPTURE(space);
    CHECK(split("!" + space + space + "!") == Pieces{"!", space, space, "!"});
  }
  // U+180E lost the property, U+200B and U+FEFF never had it.
  for (const std::string other : {"\u180E", "\u200B", "\uFEFF", "\x1C", "\x1F"})
    CHECK(split("!" + other + "!").size() == 1);
}

TEST_CASE("letters and numbers of other scripts are known") {
  CHECK(split("Grüße ٣٤ 日本Ⅷ½") == Pieces{"Grüße", " ٣٤", " 日本", "Ⅷ½"});
  CHECK(split("e\u0301") == Pieces{"e", "\u0301"});  // a combining mark is no letter
  CHECK(split("🙂𝔸") == Pieces{"🙂", "𝔸"});
}

TEST_CASE("bytes that are no UTF-8 are signs") {
  CHECK(split("a\xFF\xC3 \xE6\x97z") == Pieces{"a", "\xFF\xC3", " \xE6\x97", "z"});
  CHECK(split("\xC3") == Pieces{"\xC3"});
}

TEST_CASE("a place where a piece always ends is one, whatever stands before and behind") {
  const NamedStream stream(1, "always_ends");
  const Gpt2Split splitter;
  constexpr std::string_view kParts[] = {" ",  "  ", "\n", "'",  "s",    "re",     "X",
                                         "12", "!",  "é",  "日", "\xE6", "\u00A0", "\xA0"};
  std::uint64_t draw = 0;
  int places = 0;
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (int i = 0; i < 12; ++i)
      text += kParts[stream.below(draw++, std::size(kParts))];
    for (std::size_t at = 1; at < text.size(); ++at) {
      if (!splitter.always_ends(text, at)) continue;
      ++places;
      Pieces joined = split(text.substr(0, at));
      const Pieces behind = split(text.substr(at));
      joined.insert(joined.end(), behind.begin(), behind.end());
      CAPTURE(text);
      REQUIRE(joined == split(text));
    }
  }
  CHECK(places > 5000);
}
