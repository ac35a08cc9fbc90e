// GPT-2's vocabulary in its published layouts, against published and generated ids.

#include <doctest/doctest.h>

#include "core/error.h"
#include "core/random.h"
#include "data/gzip.h"
#include "data/temp_folder.h"
#include "data/tokenizer/golden.h"
#include "data/tokenizer/tokenizer.h"
#include "skip.h"

using namespace fovea;
using namespace fovea::data;
using fovea::test::contains;
using fovea::test::message_of;

namespace {

using Ids = std::vector<std::int32_t>;

const std::vector<std::string> kLayouts = {"encoder.json", "r50k_base.tiktoken", "tokenizer.json",
                                           "vocab.bpe"};

std::string gpt2(const std::string& file) {
  return test::test_data("gpt2-bpe/" + file);
}

// Some bytes, no matter which: UTF-8 of many scripts, ASCII of all classes, and garbage.
std::string random_bytes(std::uint64_t number) {
  const NamedStream stream(7, "gpt2_test");
  const std::uint64_t at = number * 1000;
  const std::uint64_t length = stream.below(at, 200), kind = stream.below(at + 1, 4);
  constexpr std::string_view kCommon = " \n\t'sStTreveLLlmd aAbz09.,!<|endoftext|>";
  std::string text;
  for (std::uint64_t i = 0; i < length; ++i) {
    const std::uint64_t draw = stream.bits64(at + 2 + i);
    if (kind == 0) {
      text.push_back(static_cast<char>(draw & 0xFF));
    } else if (kind == 1) {
      text.push_back(kCommon[draw % kCommon.size()]);
    } else if (kind == 2) {
      text.push_back("abAB"[draw % 4]);
    } else {
      constexpr std::string_view kParts[] = {"日",       "\u00A0", "é",    "\u3000", " ",
                                             "\xE6\x97", "٣",      "🙂", "'"};
      text += kParts[draw % std::size(kParts)];
    }
  }
  return text;
}

}  // namespace

TEST_CASE("every golden case has its ids and decodes back, in all layouts (test data)") {
  if (gpt2("encoder.json").empty()) FOVEA_SKIP("no gpt2-bpe");
  std::vector<test::GoldenCase> cases = test::golden_cases(gpt2("golden_generated.jsonl"));
  const auto published = test::golden_cases(gpt2("golden_published.jsonl"));
  cases.insert(cases.end(), published.begin(), published.end());
  REQUIRE(cases.size() == 642);
  for (const std::string& layout : kLayouts) {
    CAPTURE(layout);
    const auto plain = open_tokenizer(gpt2(layout));
    const auto special = open_tokenizer(gpt2(layout), {.allow_special = true});
    CHECK(plain->vocab_size() == 50257);
    for (const test::GoldenCase& golden : cases) {
      CAPTURE(golden.text);
      const Tokenizer& tokenizer = golden.special ? *special : *plain;
      CHECK(tokenizer.encode(golden.text) == golden.ids);
      CHECK(tokenizer.decode(golden.ids) == golden.text);
    }
  }
}

TEST_CASE("the vectors of the specification hold (test data)") {
  if (gpt2("encoder.json").empty()) FOVEA_SKIP("no gpt2-bpe");
  const auto tokenizer = open_tokenizer(gpt2("encoder.json"));
  const std::vector<std::pair<std::string, Ids>> vectors = {
      {"Hello, world!", {15496, 11, 995, 0}},
      {"   a", {220, 220, 257}},
      {"\n\n", {628}},
      {"\n\nfoo", {198, 198, 21943}},
      {"I'm you're he'LL DON'T don't", {40, 1101, 345, 821, 339, 6, 3069, 23917, 6, 51, 836, 470}},
      {"12345 1 000,000.5", {10163, 2231, 352, 12877, 11, 830, 13, 20}},
      {"日本語 テスト", {33768, 98, 17312, 105, 45739, 252, 14524, 228, 43302}},
      {"tab\tsep\t\tx", {8658, 197, 325, 79, 197, 197, 87}},
      {" trailing  ", {25462, 220, 220}},
      {"<|endoftext|>", {27, 91, 437, 1659, 5239, 91, 29}},
      {"\u00A0x", {1849, 87}},
      {" = Valkyria Chronicles III = \n", {796, 569, 18354, 7496, 17740, 6711, 796, 220, 198}}};
  for (const auto& [text, ids] : vectors) {
    CAPTURE(text);
    CHECK(tokenizer->encode(text) == ids);
  }
}

TEST_CASE("all layouts of GPT-2 have one fingerprint and one end of text (test data)") {
  if (gpt2("encoder.json").empty()) FOVEA_SKIP("no gpt2-bpe");
  const std::string fingerprint = open_tokenizer(gpt2("encoder.json"))->fingerprint();
  CHECK(fingerprint.size() == 16);
  for (const std::string& layout : kLayouts) {
    CAPTURE(layout);
    const auto tokenizer = open_tokenizer(gpt2(layout));
    CHECK(tokenizer->fingerprint() == fingerprint);
    CHECK(tokenizer->end_of_text() == 50256);
    CHECK(tokenizer->kind() == "bpe");
  }
  CHECK(open_tokenizer(gpt2("tokenizer-no-merges"))->fingerprint() != fingerprint);
}

TEST_CASE("any bytes decode back, and the layouts agree on them (test data)") {
  if (gpt2("encoder.json").empty()) FOVEA_SKIP("no gpt2-bpe");
  const auto merges = open_tokenizer(gpt2("encoder.json"));
  const auto ranks = open_tokenizer(gpt2("r50k_base.tiktoken"));
  const auto special = open_tokenizer(gpt2("tokenizer.json"), {.allow_special = true});
  for (std::uint64_t number = 0; number < 3000; ++number) {
    const std::string text = random_bytes(number);
    CAPTURE(number);
    const Ids ids = merges->encode(text);
    REQUIRE(merges->decode(ids) == text);
    REQUIRE(ranks->encode(text) == ids);
    REQUIRE(special->decode(special->encode(text)) == text);
  }
}

TEST_CASE("a text that arrives in pieces has the ids of the whole (test data)") {
  if (gpt2("encoder.json").empty()) FOVEA_SKIP("no gpt2-bpe");
  const NamedStream stream(3, "pieces");
  for (const bool allow : {false, true}) {
    const auto tokenizer = open_tokenizer(gpt2("encoder.json"), {.allow_special = allow});
    std::uint64_t draws = 0;
    for (std::uint64_t number = 0; number < 300; ++number) {
      std::string text;
      for (std::uint64_t part = 0; part < 8; ++part)
        text += random_bytes(number * 8 + part) + (part % 3 == 0 ? "<|endoftext|>" : "");
      StreamEncoder encoder(*tokenizer);
      Ids ids;
      std::size_t early = 0;
      for (std::size_t at = 0; at < text.size();) {
        const std::size_t bytes = 1 + stream.below(draws++, 40);
        encoder.add(std::string_view(text).substr(at, bytes), ids);
        at += bytes;
        early = ids.size();
      }
      encoder.finish(ids);
      CAPTURE(number);
      REQUIRE(ids == tokenizer->encode(text));
      if (text.size() > 500) CHECK(early > 0);
    }
  }
}

TEST_CASE("long runs take no quadratic time and have the ids of short ones (test data)") {
  if (gpt2("encoder.json").empty()) FOVEA_SKIP("no gpt2-bpe");
  const auto tokenizer = open_tokenizer(gpt2("encoder.json"));
  for (const std::string letter : {"a", "\n", "!", "7", "日"}) {
    std::string text;
    while (text.size() < 1'000'000)
      text += letter;
    const Ids ids = tokenizer->encode(text);
    CHECK(ids.size() < text.size());
    CHECK((tokenizer->decode(ids) == text));
  }
  CHECK(contains(message_of([&] { tokenizer->encode(std::string((1 << 24) + 1, 'a')); }),
                 "cannot encode 16777217 bytes without a break, beginning \"aaaa"));
}

TEST_CASE("a book decodes back, however it is cut (test data)") {
  const std::string path = test::test_data("gutenberg/validation/11.txt.gz");
  if (path.empty() || gpt2("encoder.json").empty()) FOVEA_SKIP("no gutenberg or gpt2-bpe");
  const std::string text = read_gzip(path, 1 << 20);
  const auto tokenizer = open_tokenizer(gpt2("encoder.json"));
  const Ids ids = tokenizer->encode(text);
  CHECK((tokenizer->decode(ids) == text));
  Ids streamed;
  StreamEncoder encoder(*tokenizer);
  for (std::size_t at = 0; at < text.size(); at += 1000) {
    encoder.add(std::string_view(text).substr(at, 1000), streamed);
    CHECK(streamed.size() > at / 8);  // most of the text does not wait
  }
  encoder.finish(streamed);
  CHECK((streamed == ids));
}

TEST_CASE("the files of a tokenizer make the same tokenizer again (test data)") {
  if (gpt2("encoder.json").empty()) FOVEA_SKIP("no gpt2-bpe");
  for (const std::string& layout : kLayouts) {
    CAPTURE(layout);
    const auto tokenizer = open_tokenizer(gpt2(layout));
    const test::TempFolder folder;
    for (const TokenizerFile& file : tokenizer->files())
      folder.put(file.name, file.bytes);
    CHECK(open_tokenizer(folder.path())->fingerprint() == tokenizer->fingerprint());
  }
}

TEST_CASE("an id outside the vocabulary is refused (test data)") {
  if (gpt2("encoder.json").empty()) FOVEA_SKIP("no gpt2-bpe");
  const auto tokenizer = open_tokenizer(gpt2("encoder.json"));
  for (const std::int32_t id : {-1, 50257}) {
    CHECK_THROWS_AS(tokenizer->piece(id), IoError);
    CHECK_THROWS_AS(tokenizer->decode(Ids{15496, id}), IoError);
  }
  CHECK(tokenizer->piece(995) == " world");
}
