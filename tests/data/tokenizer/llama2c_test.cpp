#include <cstring>

#include <doctest/doctest.h>

#include "core/error.h"
#include "core/random.h"
#include "data/temp_folder.h"
#include "data/tokenizer/golden.h"
#include "data/tokenizer/llama2c_tokenizer.h"
#include "skip.h"

using namespace fovea;
using namespace fovea::data;
using fovea::test::contains;
using fovea::test::message_of;
using fovea::test::TempFolder;

namespace {

using Ids = std::vector<std::int32_t>;

void put(std::string& to, const auto& value) {
  char bytes[4];
  std::memcpy(bytes, &value, 4);
  to.append(bytes, 4);
}

std::string with_pieces(const std::vector<std::pair<std::string, float>>& pieces) {
  std::string bytes;
  put(bytes, std::int32_t{7});
  for (const auto& [piece, score] : pieces) {
    put(bytes, score);
    put(bytes, static_cast<std::int32_t>(piece.size()));
    bytes += piece;
  }
  return bytes;
}

const std::vector<std::pair<std::string, float>> kSpecials = {
    {"<unk>", 0.f}, {"\n<s>\n", 0.f}, {"\n</s>\n", 0.f}};

std::unique_ptr<Tokenizer> with(std::vector<std::pair<std::string, float>> pieces) {
  pieces.insert(pieces.begin(), kSpecials.begin(), kSpecials.end());
  const TempFolder folder;
  return open_tokenizer(folder.put("tokenizer.bin", with_pieces(pieces)));
}

std::string tok512() {
  return test::test_data("models/stories260K/tok512.bin");
}

}  // namespace

TEST_CASE("the best score is merged first, the leftmost of equals") {
  const auto tokenizer = with({{" ", -9.f},
                               {"a", -9.f},
                               {"b", -9.f},
                               {"c", -9.f},
                               {"ab", -2.f},
                               {"bc", -1.f},
                               {" a", -3.f},
                               {"aa", -3.f}});
  CHECK(tokenizer->encode("abc") == Ids{9, 8});   // " a" "bc"
  CHECK(tokenizer->encode("ab") == Ids{3, 7});    // " " "ab"
  CHECK(tokenizer->encode("aaa") == Ids{9, 10});  // " a" before "aa"
  CHECK(tokenizer->encode("").empty());
}

TEST_CASE("characters without a piece become bytes, or unknown without those") {
  const auto tokenizer = with({{" ", 0.f}, {"<0xC3>", 0.f}, {"<0xA9>", 0.f}, {"a", 0.f}});
  CHECK(tokenizer->encode("éa") == Ids{3, 4, 5, 6});
  CHECK(tokenizer->decode(Ids{3, 4, 5, 6}) == "éa");
  CHECK(tokenizer->encode("z") == Ids{3, 0});
  CHECK(tokenizer->piece(4) == "\xC3");
}

TEST_CASE("pieces that reach over words are merged over words") {
  const auto tokenizer = with({{" ", 0.f}, {"a", 0.f}, {"a ", -1.f}, {"a a", -2.f}});
  CHECK(tokenizer->encode("a a") == Ids{3, 6});
}

TEST_CASE("a begin of text drops the space behind it") {
  const auto tokenizer = with({{" ", 0.f}, {"a", 0.f}, {" a", 0.f}});
  CHECK(tokenizer->begin_of_text() == 1);
  CHECK(tokenizer->end_of_text() == 2);
  CHECK(tokenizer->decode(Ids{5, 5, 2, 1, 5, 1, 4}) == "a aaa");
  CHECK(tokenizer->piece(5) == " a");
  CHECK(tokenizer->piece(1).empty());
}

TEST_CASE("files that are no tokenizer are refused") {
  const TempFolder folder;
  const auto refusal = [&](const std::string& bytes) {
    const std::string path = folder.put("tokenizer.bin", bytes);
    CHECK_THROWS_AS(open_tokenizer(path), IoError);
    return message_of([&] { open_tokenizer(path); });
  };
  const std::string good = with_pieces(kSpecials);
  for (std::size_t bytes = 1; bytes < good.size(); ++bytes)
    CHECK_FALSE(refusal(good.substr(0, bytes)).empty());
  std::string bad = good;
  bad[3] = '\x7f';
  CHECK(contains(refusal(bad), "its longest piece has"));
  bad = good;
  std::memset(bad.data() + 8, 0xFF, 4);
  CHECK(contains(refusal(bad), "piece 0 at byte 4 has -1 bytes"));
  bad = good;
  std::memset(bad.data() + 4, 0xFF, 4);
  CHECK(contains(refusal(bad), "the score of piece 0 is not finite"));
}

TEST_CASE("tok512 has SentencePiece's ids and texts (test data)") {
  const std::string golden = test::test_data("sentencepiece/golden_tok512.jsonl");
  if (golden.empty() || tok512().empty()) FOVEA_SKIP("no sentencepiece or models/stories260K");
  const auto tokenizer = open_tokenizer(tok512());
  CHECK(tokenizer->vocab_size() == 512);
  int cases = 0;
  // SentencePiece's normalizer changes three texts (spaces at the ends, U+2581); llama2.c has none.
  for (const test::GoldenCase& one : test::golden_cases(golden)) {
    CAPTURE(one.text);
    if (one.decoded != one.text) continue;
    CHECK(tokenizer->encode(one.text) == one.ids);
    CHECK(tokenizer->decode(one.ids) == one.text);
    ++cases;
  }
  CHECK(cases == 254);
}

TEST_CASE("the published greedy ids are the published text (test data)") {
  const std::string reference = test::test_data("models/stories260K/reference.json");
  if (reference.empty()) FOVEA_SKIP("no models/stories260K");
  const auto ids = nlohmann::json::parse(read_file(reference)).at("ids").get<Ids>();
  const std::string text =
      read_file(test::test_data("models/stories260K/expected_greedy_200steps.txt"));
  CHECK(open_tokenizer(tok512())->decode(ids) == text);
}

TEST_CASE("any bytes decode back (test data)") {
  if (tok512().empty()) FOVEA_SKIP("no models/stories260K");
  const auto tokenizer = open_tokenizer(tok512());
  const NamedStream stream(2, "llama2c_test");
  for (std::uint64_t number = 0; number < 1000; ++number) {
    std::string text;
    for (std::uint64_t i = 0; i < stream.below(number << 10, 200); ++i) {
      const std::uint64_t draw = stream.bits64((number << 10) + 1 + i);
      text.push_back(number % 2 == 0 ? static_cast<char>(draw & 0xFF) : " \nthe"[draw % 5]);
    }
    REQUIRE(tokenizer->decode(tokenizer->encode(text)) == text);
  }
}

TEST_CASE("hostile llama2.c files are no tokenizers (test data)") {
  if (test::test_data("hostile/containers/llama2c").empty()) FOVEA_SKIP("no hostile/containers");
  for (const std::string name : {"heads_do_not_divide", "negative_dims", "truncated"}) {
    const std::string path = test::test_data("hostile/containers/llama2c/" + name + ".bin");
    CHECK_THROWS_AS(open_tokenizer(path), IoError);
    CHECK(message_of([&] { open_tokenizer(path); }).starts_with(path + ": "));
  }
  CHECK_THROWS_AS(open_tokenizer(test::test_data("models/stories260K/stories260K.bin")), IoError);
}
