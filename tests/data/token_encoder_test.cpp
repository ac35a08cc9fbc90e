#include "data/token_encoder.h"

#include <doctest/doctest.h>

#include "core/error.h"
#include "data/shard.h"
#include "data/tokenizer/byte_tokenizer.h"
#include "data/tokenizer/word_tokenizer.h"
#include "skip.h"
#include "temp_folder.h"

using namespace fovea;
using namespace fovea::data;
using fovea::test::TempFolder;

namespace {

struct Encoded {
  std::vector<std::int32_t> ids;
  std::vector<std::uint64_t> offsets;
  TextCounts counts;
  friend bool operator==(const Encoded&, const Encoded&) = default;
};

// Text in pieces of `piece` bytes.
Encoded encode(const Tokenizer& tokenizer, const std::vector<std::string>& documents,
               std::size_t piece, int jobs) {
  MemoryTokens tokens(tokenizer.vocab_size());
  TokenEncoder encoder(tokenizer, jobs, tokens);
  for (const std::string& document : documents) {
    for (std::size_t at = 0; at < document.size(); at += piece)
      encoder.text(std::string_view(document).substr(at, piece));
    encoder.end_document();
  }
  encoder.finish();
  Encoded out;
  out.ids.resize(static_cast<std::size_t>(tokens.size()));
  tokens.read(0, tokens.size(), out.ids.data());
  out.offsets.assign(tokens.offsets().begin(), tokens.offsets().end());
  out.counts = encoder.counts();
  return out;
}

std::string long_text(int lines) {
  const char* kinds[] = {"It's a line of words, 12345 of them!",
                         "",
                         "   ",
                         "\t tabs\tand  spaces  ",
                         "caf\xc3\xa9 \xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e \xf0\x9f\x99\x82",
                         "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"};
  std::string text;
  for (int i = 0; i < lines; ++i)
    text += std::string(kinds[(i * 7 + i / 5) % 6]) + std::to_string(i % 977) + "\n";
  return text;
}

}  // namespace

TEST_CASE("documents that are longer than a piece have the ids of the whole, with any jobs") {
  const std::string path = test::test_data("gpt2-bpe/vocab.bpe");
  if (path.empty()) FOVEA_SKIP("no gpt2-bpe");
  const auto tokenizer = open_tokenizer(path);
  std::vector<std::string> documents = {long_text(120000), "", "short",
                                        std::string(1'500'000, ' ') + "end", long_text(10)};
  std::vector<std::int32_t> expected;
  std::vector<std::uint64_t> offsets{0};
  for (const std::string& document : documents) {
    tokenizer->encode_append(document, expected);
    expected.push_back(50256);
    offsets.push_back(expected.size());
  }
  REQUIRE(documents[0].size() > 2'000'000);
  for (const auto& [piece, jobs] :
       {std::pair<std::size_t, int>{1 << 20, 1}, {333'333, 2}, {1 << 24, 3}}) {
    CAPTURE(piece);
    const Encoded got = encode(*tokenizer, documents, piece, jobs);
    CHECK(got.ids == expected);
    CHECK(got.offsets == offsets);
  }
}

TEST_CASE("word tokens of a long text are those of the whole") {
  const std::string text = long_text(50000);
  WordCounter counter;
  counter.add(text);
  const WordTokenizer tokenizer("words", counter.finish());
  const Encoded got = encode(tokenizer, {text, "no line end", text}, 100'000, 2);
  std::vector<std::int32_t> expected = tokenizer.encode(text);
  for (const std::int32_t id : tokenizer.encode("no line end"))
    expected.push_back(id);
  CHECK(got.offsets[2] == expected.size());
  for (const std::int32_t id : tokenizer.encode(text))
    expected.push_back(id);
  CHECK(got.ids == expected);  // no mark but the <eos> of every line
  CHECK(got.counts.lines == 100001);
}

TEST_CASE("bytes are their own ids, without marks between documents") {
  const Encoded got = encode(ByteTokenizer(), {"ab\xff", "", "c"}, 1, 1);
  CHECK(got.ids == std::vector<std::int32_t>{'a', 'b', 255, 'c'});
  CHECK(got.offsets == std::vector<std::uint64_t>{0, 3, 3, 4});
  CHECK(got.counts.documents == 3);
  CHECK(got.counts.bytes == 4);
  CHECK(got.counts.invalid_bytes == 1);
}

TEST_CASE("a begin of text stands before each document where the tokenizer has one") {
  const std::string path = test::test_data("models/stories260K/tok512.bin");
  if (path.empty()) FOVEA_SKIP("no stories260K");
  const auto tokenizer = open_tokenizer(path);
  const Encoded got = encode(*tokenizer, {"Once upon", "a time"}, 3, 1);
  std::vector<std::int32_t> expected{1};
  tokenizer->encode_append("Once upon", expected);
  expected.push_back(1);
  tokenizer->encode_append("a time", expected);
  CHECK(got.ids == expected);
}

TEST_CASE("ids in memory survive in 1, 2 and 4 bytes, and joined arrays read across their seams") {
  std::vector<JoinedTokens::Part> parts;
  std::vector<std::int32_t> expected;
  for (const std::int64_t vocab : {std::int64_t{256}, std::int64_t{65536}, std::int64_t{65537}}) {
    auto tokens = std::make_shared<MemoryTokens>(vocab);
    const std::vector<std::int32_t> ids = {0, static_cast<std::int32_t>(vocab - 1), 7};
    tokens->tokens(ids);
    tokens->end_document();
    tokens->tokens(ids);
    tokens->end_document();
    std::int32_t back[6];
    tokens->read(0, 6, back);
    CHECK(std::equal(ids.begin(), ids.end(), back + 3));
    parts.push_back({tokens, 0, 6});
    for (int twice = 0; twice < 2; ++twice)
      expected.insert(expected.end(), ids.begin(), ids.end());
  }
  const JoinedTokens joined(parts);
  CHECK(joined.size() == 18);
  for (std::int64_t begin = 0; begin < 18; ++begin) {
    for (std::int64_t count = 0; begin + count <= 18; ++count) {
      std::vector<std::int32_t> got(static_cast<std::size_t>(count));
      joined.read(begin, count, got.data());
      CHECK(std::equal(got.begin(), got.end(), expected.begin() + begin));
    }
  }
  CHECK(std::vector<std::uint64_t>(joined.offsets().begin(), joined.offsets().end()) ==
        std::vector<std::uint64_t>{0, 3, 6, 9, 12, 15, 18});
  parts[1].begin = 1;
  CHECK(JoinedTokens(parts).offsets().empty());
  CHECK(JoinedTokens(parts).size() == 17);
}

TEST_CASE("the fingerprint tells ids, documents and tokenizers apart, not how they came") {
  const auto fingerprint = [](const std::vector<std::vector<std::int32_t>>& documents,
                              const char* tokenizer = "t") {
    TokenHasher hasher;
    for (const auto& document : documents) {
      for (const std::int32_t id : document)
        hasher.tokens({&id, 1});
      hasher.end_document();
    }
    return hasher.fingerprint(tokenizer);
  };
  CHECK(fingerprint({{1, 2}, {3}}) == fingerprint({{1, 2}, {3}}));
  CHECK(fingerprint({{1, 2}, {3}}) != fingerprint({{1}, {2, 3}}));
  CHECK(fingerprint({{1, 2}, {3}}) != fingerprint({{1, 2}, {4}}));
  CHECK(fingerprint({{1, 2}, {3}}) != fingerprint({{1, 2}, {3}}, "u"));
}
