#include <doctest/doctest.h>

#include "core/error.h"
#include "data/temp_folder.h"
#include "data/tokenizer/char_tokenizer.h"
#include "data/tokenizer/tokenizer.h"
#include "skip.h"

using namespace fovea;
using namespace fovea::data;
using fovea::test::contains;
using fovea::test::message_of;
using fovea::test::TempFolder;

namespace {

using Ids = std::vector<std::int32_t>;

std::unique_ptr<Tokenizer> chars_of(const std::string& text) {
  const TempFolder folder;
  return open_tokenizer("char:" + folder.put("text", text));
}

}  // namespace

TEST_CASE("ids are the text's characters in ascending order") {
  const auto tokenizer = chars_of("cab\né日🙂a");
  CHECK(tokenizer->vocab_size() == 7);
  CHECK(tokenizer->encode("\nabcé日🙂") == Ids{0, 1, 2, 3, 4, 5, 6});
  CHECK(tokenizer->decode(Ids{6, 0, 4}) == "🙂\né");
  CHECK(tokenizer->piece(5) == "日");
  CHECK_THROWS_AS(tokenizer->piece(7), IoError);
}

TEST_CASE("a character that the vocabulary lacks is refused and named") {
  CHECK(contains(message_of([] { chars_of("ab")->encode("aé"); }),
                 "lacks U+00E9, which is in the text at byte 1"));
  CHECK(contains(message_of([] { chars_of("ab")->encode("🙂"); }), "U+01F642"));
  CHECK(contains(message_of([] { chars_of("ab")->encode("b\xFF"); }), "not UTF-8"));
}

TEST_CASE("the place of a character that is lacking is that in the whole text") {
  const auto tokenizer = chars_of("ab");
  StreamEncoder encoder(*tokenizer);
  Ids ids;
  encoder.add("abab", ids);
  encoder.add("ba", ids);
  CHECK(contains(message_of([&] { encoder.add("ac", ids); }), "in the text at byte 7"));
}

TEST_CASE("U+FFFD stands for what the vocabulary lacks, if it is there") {
  const auto tokenizer = chars_of("ab\xFF");
  CHECK(tokenizer->vocab_size() == 3);
  CHECK(tokenizer->encode("aé\xC3z\xFF"
                          "b") == Ids{0, 2, 2, 2, 2, 1});
}

TEST_CASE("a vocabulary's file makes the same tokenizer") {
  const auto tokenizer = chars_of("\n a\u00E9🙂");
  REQUIRE(tokenizer->files().size() == 1);
  CHECK(tokenizer->files()[0].bytes ==
        "fovea character vocabulary 1\nU+000A\nU+0020\nU+0061\nU+00E9\nU+01F642\n");
  const TempFolder folder;
  const std::string path = folder.put("vocab.txt", tokenizer->files()[0].bytes);
  CHECK(open_tokenizer(path)->fingerprint() == tokenizer->fingerprint());
  CHECK(open_tokenizer(path)->encode("🙂a") == Ids{4, 2});
  CHECK(chars_of("\n a\u00E8🙂")->fingerprint() != tokenizer->fingerprint());
}

TEST_CASE("broken character vocabularies are refused with their line") {
  const TempFolder folder;
  const auto refusal = [&](const std::string& lines) {
    const std::string path =
        folder.put("vocab.txt", std::string(CharTokenizer::kHeader) + "\n" + lines);
    return message_of([&] { open_tokenizer(path); });
  };
  for (const std::string line :
       {"U+", "U+110000", "U+D800", "U+61x", "a", "", "u+0061", "U+-61", "U+FFFFFFFFFFFFFFFFF"}) {
    CAPTURE(line);
    CHECK(contains(refusal("U+0020\n" + line + "\nU+10FFFF\n"), "line 3: "));
  }
  CHECK(contains(refusal("U+0020\nU+0020\n"), "must ascend"));
  CHECK(contains(refusal(""), "no characters"));
}

TEST_CASE("a text in pieces has the characters and the ids of the whole") {
  const std::string text = "aé日🙂\xE6\x97z\xF0\x9F";
  const auto tokenizer = chars_of(text);
  for (std::size_t bytes = 1; bytes <= text.size(); ++bytes) {
    CAPTURE(bytes);
    CharCounter counter;
    StreamEncoder encoder(*tokenizer);
    Ids ids;
    for (std::size_t at = 0; at < text.size(); at += bytes) {
      counter.add(std::string_view(text).substr(at, bytes));
      encoder.add(std::string_view(text).substr(at, bytes), ids);
    }
    encoder.finish(ids);
    CHECK(ids == tokenizer->encode(text));
    CHECK(counter.finish() == std::vector<std::uint32_t>{'a', 'z', 0xE9, 0x65E5, 0xFFFD, 0x1F642});
  }
}

TEST_CASE("tinyshakespeare has 65 characters and decodes back (test data)") {
  const std::string path = test::test_data("tinyshakespeare/input.txt");
  if (path.empty()) FOVEA_SKIP("no tinyshakespeare");
  const auto tokenizer = open_tokenizer("char:" + path);
  CHECK(tokenizer->vocab_size() == 65);
  const std::string text = read_file(path);
  const Ids ids = tokenizer->encode(text);
  CHECK(ids.size() == 1'115'394);
  CHECK((tokenizer->decode(ids) == text));
}
