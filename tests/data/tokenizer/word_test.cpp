#include <doctest/doctest.h>

#include "core/error.h"
#include "data/gzip.h"
#include "data/temp_folder.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/word_tokenizer.h"
#include "skip.h"

using namespace fovea;
using namespace fovea::data;
using fovea::test::contains;
using fovea::test::message_of;
using fovea::test::TempFolder;

namespace {

using Ids = std::vector<std::int32_t>;

std::unique_ptr<Tokenizer> words_of(const std::string& text) {
  const TempFolder folder;
  return open_tokenizer("word:" + folder.put("text", text));
}

std::vector<std::string> vocabulary_of(const std::string& text) {
  const auto tokenizer = words_of(text);
  std::vector<std::string> words;
  for (std::int32_t id = 1; id < tokenizer->vocab_size(); ++id)
    words.push_back(tokenizer->piece(id));
  return words;
}

// What data.md and the data's README count: tokens with one <eos> a line, and <unk>.
struct Counts {
  std::size_t tokens = 0, lines = 0, unknown = 0;
};
Counts count(const Tokenizer& tokenizer, const std::string& text) {
  Counts counts;
  const Ids unknown = tokenizer.encode("<unk>");
  for (const std::int32_t id : tokenizer.encode(text)) {
    ++counts.tokens;
    counts.lines += id == 0 ? 1 : 0;
    counts.unknown += id == unknown[0] ? 1 : 0;
  }
  return counts;
}

}  // namespace

TEST_CASE("types come by descending frequency, the first one before its equals") {
  CHECK(vocabulary_of(" b a c a \n <unk> d c \n") ==
        std::vector<std::string>{"a", "c", "b", "<unk>", "d"});
}

TEST_CASE("<unk> comes last if the text has none") {
  CHECK(vocabulary_of("b b a\n") == std::vector<std::string>{"b", "a", "<unk>"});
  CHECK(words_of("b b a\n")->encode("a x\n") == Ids{2, 3, 0});
}

TEST_CASE("every line ends with <eos>, blank and unfinished ones too") {
  const auto tokenizer = words_of("a b <unk>\n");
  CHECK(tokenizer->encode(" a  b \n \n\n b") == Ids{1, 2, 0, 0, 0, 2, 0});
  CHECK(tokenizer->encode("").empty());
  CHECK(tokenizer->encode("a\tb\n") == Ids{3, 0});  // a tab is no space
  CHECK(tokenizer->end_of_text() == 0);
}

TEST_CASE("decoding writes lines as WikiText does") {
  const auto tokenizer = words_of("a b <unk>\n");
  CHECK(tokenizer->decode(Ids{1, 2, 0, 0, 2}) == " a b \n \n b ");
  CHECK_THROWS_AS(tokenizer->decode(Ids{4}), IoError);
}

TEST_CASE("a vocabulary's file makes the same tokenizer") {
  const auto tokenizer = words_of(
      "\xEF\xBB\xBF"
      "b a\r\nc b <unk>\r\n");
  REQUIRE(tokenizer->files().size() == 1);
  CHECK(tokenizer->files()[0].bytes == "<eos>\nb\na\nc\n<unk>\n");
  const TempFolder folder;
  folder.put(tokenizer->files()[0].name, tokenizer->files()[0].bytes);
  const auto read = open_tokenizer(folder.path());
  CHECK(read->fingerprint() == tokenizer->fingerprint());
  CHECK(read->encode("c a x\n") == Ids{3, 2, 4, 0});
  CHECK(words_of("b c a <unk>")->fingerprint() != read->fingerprint());
}

TEST_CASE("broken word vocabularies are refused with their line") {
  const TempFolder folder;
  const auto refusal = [&](const std::string& text) {
    const std::string path = folder.put("vocab.txt", text);
    return message_of([&] { open_tokenizer(path); });
  };
  CHECK(contains(refusal("<eos>\na\na\n<unk>\n"), "line 3: \"a\" is also in line 2"));
  CHECK(contains(refusal("<eos>\na b\n<unk>\n"), "line 2: \"a b\" is not one word"));
  CHECK(contains(refusal("<eos>\n\n<unk>\n"), "line 2"));
  CHECK(contains(refusal("<eos>\na\n"), "has no <unk>"));
}

TEST_CASE("a text in pieces has the ids and the counts of the whole") {
  const std::string text = " the cat \n sat on the mat \n\n and the cat <unk> \n end";
  for (std::size_t bytes = 1; bytes < text.size(); ++bytes) {
    WordCounter counter;
    const auto tokenizer = words_of(text);
    StreamEncoder encoder(*tokenizer);
    Ids ids;
    for (std::size_t at = 0; at < text.size(); at += bytes) {
      counter.add(std::string_view(text).substr(at, bytes));
      encoder.add(std::string_view(text).substr(at, bytes), ids);
    }
    encoder.finish(ids);
    CHECK(ids == tokenizer->encode(text));
    const Pieces vocabulary = counter.finish();
    REQUIRE(vocabulary.size() == tokenizer->vocab_size());
    for (std::int32_t id = 1; id < vocabulary.size(); ++id)
      CHECK(vocabulary[id] == tokenizer->piece(id));
  }
}

TEST_CASE("WikiText's counts are those of the data's README (test data)") {
  const std::string folder = test::test_data("wikitext-2");
  if (folder.empty() || test::test_data("wikitext-103").empty()) FOVEA_SKIP("no wikitext");
  struct Split {
    std::string path;
    Counts expected;
  };
  const Split splits[] = {
      {folder + "/valid.txt", {217'646, 3'760, 11'718}},
      {folder + "/test.txt", {245'569, 4'358, 15'218}},
      {test::test_data("wikitext-103/wiki.valid.tokens.gz"), {217'646, 3'760, 1'657}},
      {test::test_data("wikitext-103/wiki.test.tokens.gz"), {245'569, 4'358, 2'492}},
      {test::test_data("wikitext-2-raw/wiki.valid.raw.gz"), {217'646, 3'760, 0}},
      {test::test_data("wikitext-2-raw/wiki.test.raw.gz"), {245'569, 4'358, 0}},
  };
  for (const Split& split : splits) {
    CAPTURE(split.path);
    const auto tokenizer = open_tokenizer("word:" + split.path);
    const std::string text =
        is_gzip(split.path) ? read_gzip(split.path, 1 << 24) : read_file(split.path);
    const Counts counts = count(*tokenizer, text);
    CHECK(counts.tokens == split.expected.tokens);
    CHECK(counts.lines == split.expected.lines);
    CHECK(counts.unknown == split.expected.unknown);
    // Six lines of the raw files have two spaces in a row, which no word tells of.
    if (split.expected.unknown > 0) CHECK((tokenizer->decode(tokenizer->encode(text)) == text));
  }
}
