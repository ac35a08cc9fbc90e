#include "data/eval_source.h"

#include <doctest/doctest.h>

#include "core/error.h"
#include "data/prepare.h"
#include "data/random_windows.h"
#include "data/window_source.h"
#include "skip.h"
#include "temp_folder.h"

using namespace fovea;
using namespace fovea::data;
using fovea::test::contains;
using fovea::test::message_of;
using fovea::test::TempFolder;

namespace {

DataConfig text_at(const std::string& path, const std::string& tokenizer = "byte") {
  DataConfig config;
  config.path = path;
  config.tokenizer = tokenizer;
  config.val_fraction = 1;
  return config;
}

EvalSource open(const DataConfig& config, EvalProtocol protocol, Split split = Split::validation) {
  return {open_eval_text(config, split), protocol, config.pack};
}

// Two documents in the layout of PG-19.
std::string books(const TempFolder& folder) {
  folder.put("books/train/1.txt", "some text to train on\n");
  folder.put("books/test/a.txt", "\xEF\xBB\xBFna\xC3\xAFve caf\xC3\xA9\r\n\r\nend\r\n");
  folder.put("books/test/b.txt", "second book, longer than the first one is\n");
  return folder / "books";
}

std::vector<std::int32_t> all_targets(const EvalSource& source) {
  std::vector<std::int32_t> out;
  Example example;
  for (std::int64_t i = 0; i < source.size(); ++i) {
    source.get(i, 0, example);
    std::int64_t scored = 0;
    for (std::size_t t = 0; t < example.targets.size(); ++t) {
      if (example.targets[t] == kIgnored) continue;
      out.push_back(example.targets[t]);
      ++scored;
      if (t + 1 < example.tokens.size()) REQUIRE(example.tokens[t + 1] == example.targets[t]);
    }
    REQUIRE(scored == source.target_tokens(i, 0));
  }
  return out;
}

}  // namespace

TEST_CASE("without overlap, prefix and documents the windows are those of training's evaluation") {
  const TempFolder folder;
  const DataConfig config = text_at(folder.put("a.txt", "the quick brown fox jumps\n"));
  const EvalSource source = open(config, {.context = 8});
  const WindowSource plain(open_split(config, config.path, Split::validation), 8, Cut::fixed,
                           Pack::plain, 0);
  REQUIRE(source.size() == plain.size());
  CHECK(source.fingerprint() == plain.fingerprint());
  Example a, b;
  for (std::int64_t i = 0; i < source.size(); ++i) {
    source.get(i, 0, a);
    plain.get(i, 0, b);
    CHECK(a.tokens == b.tokens);
    CHECK(a.targets == b.targets);
  }
}

TEST_CASE("targets are the text in its order, whatever the stride") {
  const TempFolder folder;
  const std::string text = "the quick brown fox jumps over the lazy dog\n";
  const DataConfig config = text_at(folder.put("a.txt", text));
  for (const std::int64_t stride : {1, 3, 8, 16}) {
    const std::vector<std::int32_t> ids = all_targets(open(config, {16, stride}));
    CHECK(std::string(ids.begin(), ids.end()) == text.substr(1));
  }
}

TEST_CASE("books are scored one by one, and their bytes are those of scored tokens") {
  const TempFolder folder;
  const DataConfig config = text_at(books(folder));
  const EvalSource one = open(config, {.context = 8}, Split::test);
  const EvalSource across = open(config, {.context = 8, .documents = Tristate::no}, Split::test);
  CHECK(one.by_document());
  CHECK(one.documents() == 2);
  CHECK(one.windows().streams() == 2);
  CHECK(across.windows().streams() == 1);
  const std::int64_t bytes = one.counts()->bytes;
  CHECK(bytes == 18 + 42);  // without BOM and CR
  CHECK(one.windows().targets() == bytes - 2);
  CHECK(across.windows().targets() == bytes - 1);
  CHECK(one.scored(one.size())->bytes == bytes - 2);
  CHECK(one.scored(one.size())->characters == one.counts()->characters - 2);
  CHECK(across.scored(across.size())->bytes == bytes - 1);
  // Byte tokens: as many bytes as targets in any part.
  CHECK(one.document_counts(0)->bytes + one.document_counts(1)->bytes == bytes - 2);
  CHECK(across.document_counts(0)->bytes + across.document_counts(1)->bytes == bytes - 1);
  std::int64_t targets = 0;
  for (std::int64_t i = 0; i < one.size(); ++i) {
    CHECK(one.scored(i)->bytes == targets);
    targets += one.target_tokens(i, 0);
  }
}

TEST_CASE("targets know their document and their place in it") {
  const TempFolder folder;
  const EvalSource source = open(text_at(books(folder)), {8, 4}, Split::test);
  std::vector<EvalSource::Target> targets;
  for (std::int64_t i = 0; i < source.size(); ++i)
    source.targets_of(i, targets);
  REQUIRE(targets.size() == 58);
  for (std::size_t i = 0; i < targets.size(); ++i) {
    CHECK(targets[i].document == (i < 17 ? 0 : 1));
    CHECK(targets[i].place == static_cast<std::int64_t>(i < 17 ? i + 1 : i - 17 + 1));
  }
  CHECK(targets[17].id == 'e');
  CHECK(source.document_counts(0)->bytes == 17);
  CHECK(source.document_counts(1)->words == 8);
}

TEST_CASE("an end-of-text token before a stream lets every token be scored") {
  const TempFolder folder;
  const std::string path = folder.put("a.txt", "low lower lowest\nlow\n");
  const DataConfig config = text_at(path, "word:" + path);
  const EvalSource with = open(config, {.context = 4}),
                   without = open(config, {.context = 4, .prefix = Tristate::no});
  REQUIRE(with.prefix().has_value());
  CHECK(*with.prefix() == 0);
  CHECK(with.windows().targets() == 6);  // 4 words and 2 <eos>
  CHECK(without.windows().targets() == 5);
  CHECK(with.windows().unscored() == 0);
  Example example;
  with.get(0, 0, example);
  CHECK(example.tokens.front() == 0);
  CHECK(with.scored(with.size())->bytes == with.counts()->bytes);
  CHECK_FALSE(with.scored(1).has_value());  // words do not tell where spaces belong
  CHECK_THROWS_AS(open(text_at(path), {.context = 4, .prefix = Tristate::yes}), ConfigError);
}

TEST_CASE("a text with nothing to score is refused, one token behind a prefix is enough") {
  const TempFolder folder;
  const std::string words = folder.put("words.txt", "a b c\n");
  CHECK(contains(message_of([&] { open(text_at(folder.put("1.txt", "x")), {.context = 4}); }),
                 "nothing to score: 1 token and no prefix"));
  CHECK_THROWS_AS(open(text_at(folder.put("1.txt", "x")), {.context = 4}), IoError);
  CHECK_THROWS_AS(open(text_at(folder.put("0.txt", "")), {.context = 4}), IoError);
  const EvalSource line = open(text_at(folder.put("n.txt", "\n"), "word:" + words), {.context = 4});
  CHECK(line.windows().targets() == 1);
}

TEST_CASE("prepared tokens have the windows and the bytes of their text") {
  const TempFolder folder;
  PrepareOptions options;
  options.source = books(folder);
  options.out = folder / "shards";
  prepare(options);
  DataConfig tokens = text_at(folder / "shards");
  tokens.kind = "tokens";
  const EvalSource a = open(text_at(books(folder)), {8, 4}, Split::test),
                   b = open(tokens, {8, 4}, Split::test);
  CHECK(b.by_document());
  CHECK(all_targets(a) == all_targets(b));
  CHECK(a.scored(a.size())->bytes == b.scored(b.size())->bytes);
  CHECK(a.scored(2)->bytes == b.scored(2)->bytes);
  CHECK(a.document_counts(1)->bytes == b.document_counts(1)->bytes);
  CHECK(a.fingerprint() == b.fingerprint());
}

TEST_CASE("token files of others are one stream without bytes, and random windows lie inside") {
  const TempFolder folder;
  std::string ids;
  for (int i = 0; i < 40; ++i)
    ids += {static_cast<char>(i), 0};
  DataConfig config = text_at(folder.put("val.bin", ids));
  config.kind = "tokens";
  config.vocab_size = 40;
  CHECK(holds_tokens(config.path));
  CHECK(holds_tokens(folder.path()));
  CHECK_FALSE(holds_tokens(folder.put("a/b.txt", "text")));
  const EvalSource source = open(config, {.context = 16});
  CHECK(source.windows().targets() == 39);
  CHECK_FALSE(source.scored(source.size()).has_value());
  CHECK_THROWS_AS(open(config, {.context = 16, .documents = Tristate::yes}), ConfigError);

  const RandomWindows random(source.text(), 16, 600);
  std::vector<int> starts(40, 0);
  Example example;
  for (std::int64_t i = 0; i < random.size(); ++i) {
    random.get(i, 0, example);
    REQUIRE(example.tokens.size() == 16);
    CHECK(example.targets[15] == example.tokens[0] + 16);
    ++starts[static_cast<std::size_t>(example.tokens[0])];
  }
  for (int start = 0; start < 40; ++start)
    CHECK((starts[static_cast<std::size_t>(start)] > 0) == (start < 24));
  CHECK_THROWS_AS(RandomWindows(source.text(), 40, 1), IoError);
}

TEST_SUITE("with test data") {
  TEST_CASE("WikiText's three word counts are the published ones") {
    const std::string tokens = test::test_data("wikitext-103/wiki.test.tokens.gz"),
                      raw = test::test_data("wikitext-2-raw/wiki.test.raw.gz");
    if (tokens.empty() || raw.empty()) FOVEA_SKIP("the WikiText files are not there");
    const EvalText a = open_eval_text(text_at(tokens), Split::validation),
                   b = open_eval_text(text_at(raw), Split::validation);
    CHECK(a.counts()->words == 241211);
    CHECK(a.counts()->words + a.counts()->lines == 245569);
    CHECK(*a.parts[0].inner_spaces == 245565);
    CHECK(*b.parts[0].inner_spaces == 245569);
  }
}

TEST_CASE("bytes that are not UTF-8 count the same in a part as in the whole") {
  const TempFolder folder;
  // Continuations and leads alone, a cut-off character before a document's end, and whole ones.
  folder.put("books/train/1.txt", "x");
  folder.put("books/test/a.txt",
             "\x80\xBF"
             "a\xC3\xA9\xE6\x97\xF0\x9F\x99\x82\xFF\xE6\x97");
  folder.put("books/test/b.txt", "\xA5\xC3\xA9\xED\xA0\x80z");
  for (const Tristate documents : {Tristate::yes, Tristate::no}) {
    const EvalSource source =
        open(text_at(folder / "books"), {2, 2, Tristate::automatic, documents}, Split::test);
    const std::int64_t all = source.scored(source.size())->characters;
    CHECK(all == source.counts()->characters - (documents == Tristate::yes ? 2 : 1));
    CHECK(source.counts()->characters == 2 + 1 + 1 + 2 + 1 + 1 + 2 + 1 + 1 + 3 + 1);
    std::int64_t before = 0;
    for (std::int64_t i = 1; i < source.size(); ++i) {
      const ScoredText part = *source.scored(i);
      CHECK(part.characters <= part.bytes);
      CHECK(part.characters >= before);
      before = part.characters;
    }
    // The last window of a byte: z.
    std::vector<EvalSource::Target> last;
    source.targets_of(source.size() - 1, last);
    CHECK(all - before == static_cast<std::int64_t>(last.size()));
    CHECK(source.document_counts(0)->characters + source.document_counts(1)->characters == all);
  }
}

TEST_CASE("a character that the vocabulary lacks is found in its file") {
  const TempFolder folder;
  const std::string vocabulary = "char:" + folder.put("v", "abc\n");
  folder.put("texts/1.txt", "abc\n");
  folder.put("texts/2.txt", std::string(1'300'000, 'a') + "\nd");
  const auto message = [&](double val_fraction) {
    DataConfig config = text_at(folder / "texts", vocabulary);
    config.val_fraction = val_fraction;
    return message_of([&] { open_eval_text(config, Split::validation); });
  };
  const std::string expected =
      "lacks U+0064, which is in the text of " + (folder / "texts/2.txt") + " at byte 1300001";
  CHECK(contains(message(1), expected));
  CHECK(contains(message(0.5), expected));
  folder.put("texts/2.txt", "");
  folder.put("texts/3.jsonl", "{\"text\": \"a\"}\n\n{\"text\": \"cad\"}\n");
  CHECK(contains(message(1), "text of " + (folder / "texts/3.jsonl") + ": line 3 at byte 2"));
}
