#include <doctest/doctest.h>

#include "core/error.h"
#include "data/temp_folder.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/unicode_classes.h"

using namespace fovea;
using namespace fovea::data;
using fovea::test::contains;
using fovea::test::message_of;
using fovea::test::TempFolder;

namespace {

using Ids = std::vector<std::int32_t>;

}  // namespace

TEST_CASE("the byte tokenizer's ids are bytes") {
  const auto tokenizer = open_tokenizer("byte");
  CHECK(tokenizer->kind() == "byte");
  CHECK(tokenizer->vocab_size() == 256);
  CHECK(tokenizer->encode(std::string("a\0\xFF", 3)) == Ids{97, 0, 255});
  CHECK(tokenizer->decode(Ids{97, 0, 255}) == std::string("a\0\xFF", 3));
  CHECK(contains(message_of([&] { tokenizer->decode(Ids{256}); }),
                 "token id 256 is outside the byte vocabulary [0, 256)"));
  CHECK(tokenizer->files().empty());
  CHECK(tokenizer->fingerprint().size() == 16);
  CHECK(tokenizer->safe_cut("abc", 0) == 3);
}

TEST_CASE("a name that means nothing says what there is") {
  CHECK(contains(message_of([] { open_tokenizer("nonesuch"); }),
                 "tokenizer \"nonesuch\" is neither a name (byte, char:TEXT, word:TEXT) nor"));
  CHECK_THROWS_AS(open_tokenizer(""), IoError);
  CHECK_THROWS_AS(open_tokenizer("char:nonesuch"), IoError);
}

TEST_CASE("files and folders of other kinds are refused with what was looked for") {
  const TempFolder folder;
  CHECK(contains(message_of([&] { open_tokenizer(folder.path()); }), "has no tokenizer"));
  const std::string text = folder.put("novel.txt", "Call me Ishmael.\n");
  CHECK(contains(message_of([&] { open_tokenizer(text); }), "is no tokenizer file"));
  CHECK(contains(message_of([&] { open_tokenizer(text); }), "char:" + text));
  const std::string empty = folder.put("empty", "");
  CHECK_THROWS_AS(open_tokenizer(empty), IoError);
  folder.put("a.tiktoken", "YQ== 0\n");
  CHECK(open_tokenizer(folder.path())->vocab_size() == 2);
  folder.put("b.tiktoken", "YQ== 0\n");
  CHECK(contains(message_of([&] { open_tokenizer(folder.path()); }), "a.tiktoken, b.tiktoken"));
}

TEST_CASE("a SentencePiece model is called by its name") {
  const TempFolder folder;
  const std::string unknown("\n\x0E\n\x05<unk>\x15\0\0\0\0\x18\x02", 16);
  const std::string path = folder.put("tokenizer.model", unknown + unknown);
  CHECK(contains(message_of([&] { open_tokenizer(path); }), "SentencePiece model"));
  CHECK(contains(
      message_of([&] { open_tokenizer(folder.put("no_score.bin", "\n\x09\n\x05<unk>\x18\x02")); }),
      "SentencePiece model"));
}

TEST_CASE("a folder is searched for a tokenizer, and those in it are not") {
  const TempFolder folder;
  folder.put("deep/a.tiktoken", "YQ== 0\n");
  std::filesystem::create_symlink("loop", folder / "deep/loop");
  CHECK(contains(message_of([&] { open_tokenizer(folder.path()); }), "has no tokenizer"));
}

TEST_CASE("a folder's tokenizer.json goes before its vocab.json, whose splitter is not told") {
  const TempFolder folder;
  folder.put("vocab.json", R"({"a": 0})");
  folder.put("merges.txt", "#version: 0.2\n");
  CHECK(open_tokenizer(folder.path())->vocab_size() == 1);
  folder.put("tokenizer.json", R"({"model": {"type": "WordPiece"}})");
  CHECK(contains(message_of([&] { open_tokenizer(folder.path()); }), "WordPiece"));
}

TEST_CASE("classes of characters are those of Unicode") {
  const UnicodeClasses classes;
  int counts[4] = {};
  for (std::uint32_t c = 0; c < 0x110000; ++c)
    ++counts[static_cast<int>(classes.of(c))];
  CHECK(counts[static_cast<int>(CharClass::space)] == 25);        // White_Space since Unicode 6.3
  CHECK(counts[static_cast<int>(CharClass::letter)] >= 125'643);  // Unicode 12
  CHECK(counts[static_cast<int>(CharClass::number)] >= 1'708);
  CHECK(classes.of(0xD800) == CharClass::other);
  CHECK(classes.of(kInvalid) == CharClass::other);
  CHECK(classes.of(0x20000) == CharClass::letter);
}
