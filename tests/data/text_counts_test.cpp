#include "data/text_counts.h"

#include <doctest/doctest.h>

using namespace fovea::data;

namespace {

TextCounts count(std::string_view text, std::size_t piece = 1000) {
  TextCounter counter;
  for (std::size_t at = 0; at < text.size(); at += piece)
    counter.add(text.substr(at, piece));
  counter.end_document();
  return counter.counts();
}

}  // namespace

TEST_CASE("bytes, characters, words and lines are what they are called") {
  const TextCounts counts = count(" one\ttwo \n\n na\xc3\xafve");
  CHECK(counts.documents == 1);
  CHECK(counts.bytes == 18);
  CHECK(counts.characters == 17);
  CHECK(counts.words == 3);
  CHECK(counts.lines == 3);  // a blank one, and the last without LF
  CHECK(counts.invalid_bytes == 0);
  CHECK(count("").lines == 0);
  CHECK(count("\n").lines == 1);
  CHECK(count("a\n").lines == 1);
}

TEST_CASE("bytes that are not UTF-8 count one by one, as a character each") {
  CHECK(count("\xff\xfe").invalid_bytes == 2);
  CHECK(count("\xc3").invalid_bytes == 1);              // cut off
  CHECK(count("\xe2\x82").invalid_bytes == 2);          // cut off
  CHECK(count("\xe2\x82z").invalid_bytes == 2);         // broken off
  CHECK(count("\xc0\xaf").invalid_bytes == 2);          // overlong
  CHECK(count("\xed\xa0\x80").invalid_bytes == 3);      // a surrogate
  CHECK(count("\xf4\x90\x80\x80").invalid_bytes == 4);  // above U+10FFFF
  CHECK(count("\xf0\x9f\x99\x82").invalid_bytes == 0);
  CHECK(count("\xf0\x9f\x99\x82").characters == 1);
  CHECK(count("a\xffz").characters == 3);
}

TEST_CASE("where a text is cut into pieces does not show") {
  const std::string text =
      "caf\xc3\xa9 \xe2\x82\xac\xf0\x9f\x99\x82 \xff\xe2\x82 \xf0\x9f\x99 two\n\nwords\xc3";
  const TextCounts whole = count(text);
  for (std::size_t piece = 1; piece < text.size(); ++piece) {
    CAPTURE(piece);
    CHECK(count(text, piece) == whole);
  }
}

TEST_CASE("words, lines and characters do not go on in the next document") {
  TextCounter counter;
  counter.add("one\xe2\x82");
  counter.end_document();
  counter.add("\xactwo");
  counter.end_document();
  CHECK(counter.counts().documents == 2);
  CHECK(counter.counts().words == 2);
  CHECK(counter.counts().lines == 2);
  CHECK(counter.counts().invalid_bytes == 3);
  CHECK(counter.counts().characters == 9);
}
