#include "data/window_source.h"

#include <algorithm>
#include <set>

#include <doctest/doctest.h>

#include "core/error.h"
#include "data/loader.h"
#include "temp_folder.h"

using namespace fovea;
using namespace fovea::data;
using fovea::test::contains;
using fovea::test::message_of;

namespace {

// Tokens that tell their place: 0, 1, 2, ... in documents of these lengths.
TokenSplit counting(const std::vector<int>& documents) {
  auto tokens = std::make_shared<MemoryTokens>(1000);
  std::int32_t next = 0;
  for (const int length : documents) {
    for (int i = 0; i < length; ++i, ++next)
      tokens->tokens({&next, 1});
    tokens->end_document();
  }
  TokenSplit split;
  split.path = "counting";
  split.tokens = tokens;
  split.vocab = 1000;
  return split;
}

WindowSource source_of(const std::vector<int>& documents, int seq_len, Cut cut,
                       Pack pack = Pack::plain) {
  return WindowSource(counting(documents), seq_len, cut, pack, 1);
}

Example example_of(const Source& source, std::int64_t i, std::int64_t epoch) {
  Example example;
  source.get(i, epoch, example);
  return example;
}

}  // namespace

TEST_CASE("evaluation windows score every token after the first exactly once") {
  for (const int size : {2, 8, 9, 10, 16, 17, 200}) {
    const WindowSource source = source_of({size}, 8, Cut::fixed);
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
  const WindowSource source = source_of({100}, 8, Cut::shifted);
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
  CHECK(seen.size() == 99);  // every token but the first has its turn, up to the last
}

TEST_CASE("a split of just one window trains, a smaller one is refused") {
  const WindowSource source = source_of({9}, 8, Cut::shifted);
  CHECK(source.size() == 1);
  CHECK(example_of(source, 0, 5).tokens[0] == 0);
  CHECK(message_of([] { source_of({8}, 8, Cut::shifted); }) ==
        "counting: the train split has 8 tokens, but a window needs 9; give more text or lower "
        "data.seq_len");
  CHECK_THROWS_AS(source_of({1}, 8, Cut::fixed), IoError);
}

TEST_CASE("document masks: segments and positions begin anew, and no target crosses a border") {
  // Documents [0,3), [3,3), [3,4), [4,13), [13,20).
  const WindowSource source = source_of({3, 0, 1, 9, 7}, 8, Cut::fixed, Pack::documents);
  REQUIRE(source.has_segments());
  const Example first = example_of(source, 0, 0);
  CHECK(first.tokens == std::vector<std::int32_t>{0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(first.segments == std::vector<std::int32_t>{0, 0, 0, 1, 2, 2, 2, 2});
  CHECK(first.positions == std::vector<std::int32_t>{0, 1, 2, 0, 0, 1, 2, 3});
  CHECK(first.targets == std::vector<std::int32_t>{1, 2, -1, -1, 5, 6, 7, 8});
  const Example second = example_of(source, 1, 0);
  CHECK(second.segments == std::vector<std::int32_t>{0, 0, 0, 0, 0, 1, 1, 1});
  CHECK(second.positions == std::vector<std::int32_t>{0, 1, 2, 3, 4, 0, 1, 2});
  CHECK(second.targets[4] == kIgnored);
  const Example last = example_of(source, 2, 0);
  CHECK(last.tokens.size() == 3);
  CHECK(last.targets == std::vector<std::int32_t>{17, 18, 19});
}

TEST_CASE("with document masks, target_tokens counts what get() leaves, in every epoch") {
  const WindowSource source =
      source_of({1, 1, 5, 0, 0, 17, 2, 30, 1, 0, 8, 8, 8, 1}, 8, Cut::shifted, Pack::documents);
  for (std::int64_t epoch = 0; epoch < 20; ++epoch) {
    for (std::int64_t i = 0; i < source.size(); ++i) {
      const Example example = example_of(source, i, epoch);
      const auto scored = static_cast<std::int64_t>(example.targets.size()) -
                          std::count(example.targets.begin(), example.targets.end(), kIgnored);
      CHECK(source.target_tokens(i, epoch) == scored);
    }
  }
}

TEST_CASE("a batch has segments and positions, with what fills up short rows apart") {
  const WindowSource source = source_of({3, 7, 1}, 8, Cut::fixed, Pack::documents);
  const Batch batch = EvalLoader(source, 3).at(0);  // rows of 8 and 2 tokens, and an empty one
  REQUIRE(batch.segments.defined());
  CHECK(batch.segments.values() == std::vector<double>{0, 0, 0, 1, 1, 1, 1, 1,  //
                                                       0, 0, 1, 1, 1, 1, 1, 1,  //
                                                       0, 0, 0, 0, 0, 0, 0, 0});
  CHECK(batch.positions.values() == std::vector<double>{0, 1, 2, 0, 1, 2, 3, 4,  //
                                                        0, 1, 0, 1, 2, 3, 4, 5,  //
                                                        0, 0, 0, 0, 0, 0, 0, 0});
  CHECK(batch.target_tokens == 8);
  const WindowSource plain = source_of({3, 7, 1}, 8, Cut::fixed);
  CHECK_FALSE(EvalLoader(plain, 3).at(0).segments.defined());
  CHECK_FALSE(EvalLoader(plain, 3).at(0).positions.defined());
}

TEST_CASE("another cut into micro-batches shows the same tokens, segments and positions") {
  const WindowSource source = source_of({50, 3, 90, 1, 60}, 8, Cut::shifted, Pack::documents);
  const Loader whole(source, {.global_batch = 12, .micro_batch = 12}, 3);
  for (const std::int64_t rows : {1, 3, 6}) {
    const Loader parts(source, {.global_batch = 12, .micro_batch = rows}, 3);
    for (std::int64_t step = 0; step < 6; ++step) {
      const Batch expected = whole.at(step, 0);
      std::vector<double> tokens, segments, positions;
      for (std::int64_t micro = 0; micro < parts.micro_batches(); ++micro) {
        const Batch batch = parts.at(step, micro);
        for (const auto& [to, from] :
             {std::pair(&tokens, &batch.tokens), std::pair(&segments, &batch.segments),
              std::pair(&positions, &batch.positions)}) {
          for (const double value : from->values())
            to->push_back(value);
        }
      }
      CHECK(tokens == expected.tokens.values());
      CHECK(segments == expected.segments.values());
      CHECK(positions == expected.positions.values());
      CHECK(whole.target_tokens(step) == expected.target_tokens);
    }
  }
}

TEST_CASE("make_source builds every kind and refuses unknown ones by name") {
  const fovea::test::TempFolder folder;
  DataConfig config;
  config.listops.train_examples = config.listops.validation_examples = 3;
  for (const std::string& kind : source_kinds()) {
    config.kind = kind;
    const bool reads = kind == "text" || kind == "tokens";
    config.path = reads ? folder.put("a.bin", std::string(2000, 'a')) : std::string();
    const auto source = make_source(config, 64, Split::validation, 1);
    const Example example = example_of(*source, 0, 0);
    for (const std::int32_t token : example.tokens)
      CHECK((token >= 0 && token < vocab_size(config)));
    CHECK(source->seq_len() == 64);
    CHECK(contains(source->summary(), kind));
    CHECK(source->fingerprint().size() == 16);
  }
  config.kind = "txt";
  CHECK_THROWS_WITH_AS(
      make_source(config, 64, Split::train, 1),
      "data.kind is txt, but must be one of text, tokens, mqar, markov, listops, niah",
      ConfigError);
  config.kind = "text";
  config.tokenizer = "gpt2";
  CHECK_THROWS_AS(vocab_size(config), IoError);
  CHECK_THROWS_AS(make_source(config, 64, Split::train, 1), IoError);
  config.tokenizer = "byte";
  CHECK_THROWS_AS(make_source(config, 0, Split::train, 1), ConfigError);
}
