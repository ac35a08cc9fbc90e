// Preparing real corpora.

#include <filesystem>

#include <doctest/doctest.h>

#include "data/prepare.h"
#include "skip.h"
#include "temp_folder.h"

using namespace fovea;
using namespace fovea::data;
using fovea::test::TempFolder;
namespace fs = std::filesystem;

TEST_CASE("WikiText and the books have the counts that their README says (test data)") {
  const std::string root = test::test_data("wikitext-103");
  if (root.empty()) FOVEA_SKIP("no wikitext-103");
  const TempFolder out;
  const auto made = [&](const std::string& source, const std::string& vocab_from) {
    PrepareOptions o;
    o.source = source;
    o.out = out / fs::path(source).filename().string();
    if (!vocab_from.empty()) {
      o.tokenizer = "word";
      o.vocab_from = vocab_from;
    }
    return prepare(o);
  };
  const Prepared words = made(root, root + "/wiki.valid.tokens.gz");
  const Prepared two = made(test::test_data("wikitext-2"), test::test_data("wikitext-2/valid.txt"));
  const Prepared raw = made(test::test_data("wikitext-2-raw"), "");
  for (const Prepared* set : {&words, &two, &raw}) {
    REQUIRE(set->splits.size() == 2);
    const TextCounts& valid = set->splits[0].manifest.counts;
    const TextCounts& test = set->splits[1].manifest.counts;
    CHECK(valid.lines == 3760);
    CHECK(valid.words == 213886);
    CHECK(test.lines == 4358);
    CHECK(test.words == 241211);
  }
  for (const Prepared* set : {&words, &two}) {
    CHECK(set->splits[0].manifest.tokens == 217646);
    CHECK(set->splits[1].manifest.tokens == 245569);
  }
  CHECK(two.splits[1].manifest.counts.bytes == 1256449);
  CHECK(raw.splits[1].manifest.tokens == raw.splits[1].manifest.counts.bytes);
  const Prepared books = made(test::test_data("gutenberg"), "");
  REQUIRE(books.splits.size() == 3);
  CHECK(books.splits[0].manifest.counts.documents == 9);
  CHECK(books.splits[1].manifest.counts.documents == 2);
  CHECK(books.splits[2].manifest.counts.documents == 2);
  CHECK(books.splits[2].manifest.removed.carriage_returns > 10000);
  const Prepared web = made(test::test_data("c4-en-mini"), "");
  REQUIRE(web.splits.size() == 2);
  CHECK(web.splits[0].manifest.counts.documents == 1000);
  CHECK(web.splits[1].manifest.counts.documents == 200);
}
