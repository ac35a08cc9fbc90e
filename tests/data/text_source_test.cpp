#include "data/text_source.h"

#include <set>

#include <doctest/doctest.h>

#include "core/error.h"
#include "data/source.h"
#include "temp_folder.h"

using namespace fovea;
using namespace fovea::data;
using fovea::test::contains;
using fovea::test::message_of;

namespace {

// Bytes that tell their place: 0, 1, 2, ...
Corpus counting(int size) {
  Corpus corpus;
  for (int i = 0; i < size; ++i)
    corpus.bytes.push_back(static_cast<char>(i));
  corpus.documents.push_back({"counting", 0});
  return corpus;
}

Example example_of(const Source& source, std::int64_t i, std::int64_t epoch) {
  Example example;
  source.get(i, epoch, example);
  return example;
}

}  // namespace

TEST_CASE("evaluation windows score every byte after the first exactly once") {
  for (const int size : {2, 8, 9, 10, 16, 17, 200}) {
    const TextSource source(counting(size), 8, Cut::fixed, 1);
    std::vector<int> scored;
    for (std::int64_t i = 0; i < source.size(); ++i) {
      const Example example = example_of(source, i, 0);
      CHECK(static_cast<std::int64_t>(example.targets.size()) == source.target_tokens(i, 0));
      for (std::size_t t = 0; t < example.targets.size(); ++t) {
        CHECK(example.targets[t] == example.tokens[t] + 1);
        scored.push_back(example.targets[t]);
      }
    }
    REQUIRE(static_cast<int>(scored.size()) == size - 1);
    for (int i = 1; i < size; ++i)
      CHECK(scored[static_cast<std::size_t>(i - 1)] == i);
  }
}

TEST_CASE("training windows of an epoch do not overlap, and epochs cut at different places") {
  const TextSource source(counting(100), 8, Cut::shifted, 1);
  REQUIRE(source.size() == 11);
  std::set<std::int32_t> starts, seen;
  for (std::int64_t epoch = 0; epoch < 60; ++epoch) {
    const std::int32_t first = example_of(source, 0, epoch).tokens[0];
    starts.insert(first);
    for (std::int64_t i = 0; i < source.size(); ++i) {
      const Example example = example_of(source, i, epoch);
      REQUIRE(example.tokens.size() == 8);
      for (std::size_t t = 0; t < 8; ++t) {
        CHECK(example.tokens[t] == first + 8 * i + static_cast<std::int64_t>(t));
        CHECK(example.targets[t] == example.tokens[t] + 1);
        seen.insert(example.targets[t]);
      }
    }
  }
  CHECK(starts.size() > 8);
  CHECK(*starts.rbegin() == 11);
  CHECK(seen.size() == 99);  // every byte but the first has its turn, up to the last
}

TEST_CASE("a corpus of just one window trains, a smaller one is refused") {
  const TextSource source(counting(9), 8, Cut::shifted, 1);
  CHECK(source.size() == 1);
  CHECK(example_of(source, 0, 5).tokens[0] == 0);
  const std::string message = message_of([] { TextSource(counting(8), 8, Cut::shifted, 1); });
  CHECK(message ==
        "counting: the train split has 8 clean bytes in 1 file(s), but a window needs 9; give more "
        "text or "
        "lower data.seq_len");
  CHECK_THROWS_AS(TextSource(counting(1), 8, Cut::fixed, 1), IoError);
}

TEST_CASE("bytes above 127 are ids above 127") {
  Corpus corpus;
  corpus.bytes = std::string("\xff\x80\x00z", 4);
  CHECK(example_of(TextSource(corpus, 3, Cut::fixed, 1), 0, 0).tokens ==
        std::vector<std::int32_t>{255, 128, 0});
}

TEST_CASE("make_source builds every kind and refuses unknown ones by name") {
  const fovea::test::TempFolder folder;
  DataConfig config;
  config.path = folder.put("a.txt", std::string(1000, 'a'));
  for (const std::string& kind : source_kinds()) {
    config.kind = kind;
    const auto source = make_source(config, 64, Split::validation, 1);
    const Example example = example_of(*source, 0, 0);
    for (const std::int32_t token : example.tokens)
      CHECK((token >= 0 && token < vocab_size(config)));
    CHECK(source->seq_len() == 64);
    CHECK(contains(source->summary(), kind));
  }
  config.kind = "txt";
  CHECK_THROWS_WITH_AS(make_source(config, 64, Split::train, 1),
                       "data.kind is txt, but must be one of text, mqar, markov", ConfigError);
  config.kind = "text";
  config.tokenizer = "gpt2";
  CHECK_THROWS_AS(vocab_size(config), ConfigError);
  CHECK_THROWS_AS(make_source(config, 64, Split::train, 1), ConfigError);
  config.tokenizer = "byte";
  CHECK_THROWS_AS(make_source(config, 0, Split::train, 1), ConfigError);
}
