#include "data/niah.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <doctest/doctest.h>

#include "core/error.h"
#include "data/loader.h"
#include "temp_folder.h"

using namespace fovea;
using namespace fovea::data;
using namespace fovea::test;

namespace {

NiahConfig elsaa(int needles = 1) {
  NiahConfig config;
  config.needles = needles;
  return config;
}
NiahConfig marked(int decoys = 0) {
  NiahConfig config;
  config.layout = NiahLayout::marked;
  config.decoys = decoys;
  return config;
}

Example example_of(const Source& source, std::int64_t i) {
  Example example;
  source.get(i, 0, example);
  return example;
}

bool is_key(std::int32_t id) {
  return id >= 50 && id < 114;
}

// Of layout elsaa: offset of each pair, by its key; and the value behind it.
struct Pair {
  std::int64_t offset;
  std::int32_t value;
};
std::map<std::int32_t, Pair> pairs_of(const Example& example) {
  std::map<std::int32_t, Pair> out;
  std::int64_t fillers = 0;
  for (std::size_t at = 0; example.tokens[at] != 178; ++at) {
    const std::int32_t id = example.tokens[at];
    if (id < 50) ++fillers;
    if (is_key(id)) CHECK(out.emplace(id, Pair{fillers, example.tokens[at + 1]}).second);
  }
  return out;
}

}  // namespace

TEST_CASE("niah: the queried key's value is asked for at the last position and nowhere else") {
  for (const int needles : {1, 5}) {
    const NiahSource source(elsaa(needles), {.length = 100}, Split::train, 1);
    for (std::int64_t i = 0; i < 200; ++i) {
      const Example example = example_of(source, i);
      REQUIRE(example.tokens.size() == 100);
      CHECK(std::count(example.targets.begin(), example.targets.end(), kIgnored) == 99);
      CHECK(std::count(example.tokens.begin(), example.tokens.end(), 178) == 1);
      CHECK(example.tokens[98] == 178);
      const auto pairs = pairs_of(example);
      CHECK(static_cast<int>(pairs.size()) == needles);
      const auto asked = pairs.find(example.tokens[99]);
      REQUIRE(asked != pairs.end());
      CHECK(asked->second.value == example.targets[99]);
      CHECK(example.group.empty());
      for (const auto& [key, pair] : pairs) {
        CHECK((pair.value >= 114 && pair.value < 178));
        CHECK((pair.offset >= 4 && pair.offset <= 91));
      }
    }
  }
}

TEST_CASE("niah: offsets are uniform from 5 to 95 % of the fillers, both ends included") {
  const NiahSource source(elsaa(), {.length = 44}, Split::train, 3);  // 40 fillers: 2 to 38
  constexpr int kExamples = 20000;
  std::map<std::int64_t, int> count;
  for (std::int64_t i = 0; i < kExamples; ++i)
    ++count[pairs_of(example_of(source, i)).begin()->second.offset];
  CHECK(count.size() == 37);
  CHECK(count.begin()->first == 2);
  CHECK(count.rbegin()->first == 38);
  const double p = 1.0 / 37;
  // Five standard errors: a false alarm of one offset in two million.
  for (const auto& [offset, n] : count)
    CHECK(std::abs(static_cast<double>(n) / kExamples - p) <
          5 * std::sqrt(p * (1 - p) / kExamples));
}

TEST_CASE("niah: a value does not follow from its key, and all 64 of both are drawn") {
  const NiahSource source(elsaa(2), {.length = 30}, Split::train, 3);
  std::map<std::int32_t, std::set<std::int32_t>> values;
  std::set<std::int32_t> all;
  for (std::int64_t i = 0; i < 5000; ++i) {
    for (const auto& [key, pair] : pairs_of(example_of(source, i))) {
      values[key].insert(pair.value);
      all.insert(pair.value);
    }
  }
  CHECK(values.size() == 64);
  CHECK(all.size() == 64);
  for (const auto& [key, seen] : values)
    CHECK(seen.size() > 40);
}

TEST_CASE("niah: every needle is asked for, whichever comes first") {
  const NiahSource source(elsaa(4), {.length = 200}, Split::train, 3);
  std::vector<int> rank(4, 0);
  for (std::int64_t i = 0; i < 4000; ++i) {
    const Example example = example_of(source, i);
    const auto pairs = pairs_of(example);
    const std::int64_t asked = pairs.at(example.tokens.back()).offset;
    int before = 0;
    for (const auto& [key, pair] : pairs)
      before += pair.offset < asked ? 1 : 0;
    ++rank[static_cast<std::size_t>(before)];
  }
  for (const int n : rank)
    CHECK(std::abs(n - 1000) < 150);
}

TEST_CASE("niah: the reference generator has its three defects") {
  NiahConfig config = elsaa();
  config.generator = NiahGenerator::reference;
  const NiahSource one(config, {.length = 40, .depth = 0.1}, Split::test, 1);
  for (std::int64_t i = 0; i < 50; ++i) {
    const Example example = example_of(one, i);
    REQUIRE(example.tokens.size() == 40);
    CHECK(example.tokens[39] == 178);
    CHECK(is_key(example.tokens[35]));  // two fillers before the end, whatever the depth
    CHECK(example.tokens[36] == example.tokens[35] + 64);
    CHECK(example.targets[39] == example.tokens[35]);
  }
  CHECK(niah_values(config).begin == 50);
  config.needles = 5;
  const NiahSource five(config, {.length = 60}, Split::train, 1);
  for (std::int64_t i = 0; i < 50; ++i) {
    const Example example = example_of(five, i);
    const auto pairs = pairs_of(example);
    CHECK(pairs.size() == 5);
    CHECK(pairs.count(example.targets[59]) == 1);
  }
}

TEST_CASE("niah: the test has a source for each length and depth, the longest first") {
  NiahConfig config = elsaa(3);
  config.test_lengths = {64, 512, 128};
  config.test_examples = 20;
  config.depths = {0.1, 0.5, 0.9};
  const auto sources = niah_test(config, 256, 1);
  REQUIRE(sources.size() == 9);
  CHECK(sources[0]->seq_len() == 512);
  CHECK(sources[8]->seq_len() == 64);
  CHECK(sources[0]->size() == 20);
  for (std::size_t k = 0; k < sources.size(); ++k) {
    const std::int64_t fillers = sources[k]->seq_len() - 8;
    const double depth = config.depths[k % 3];
    for (std::int64_t i = 0; i < 20; ++i) {
      const Example example = example_of(*sources[k], i);
      CHECK(example.group == (k % 3 == 0 ? "0.1" : k % 3 == 1 ? "0.5" : "0.9"));
      for (const auto& [key, pair] : pairs_of(example))
        CHECK(pair.offset == static_cast<std::int64_t>(depth * static_cast<double>(fillers)));
    }
  }
  config.test_lengths.clear();
  config.depths.clear();
  const auto own = niah_test(config, 256, 1);
  REQUIRE(own.size() == 1);
  CHECK(own[0]->seq_len() == 256);
  std::set<std::string> tenths;
  for (std::int64_t i = 0; i < 20; ++i)
    tenths.insert(example_of(*own[0], i).group);
  CHECK(tenths.size() > 5);
}

TEST_CASE("niah: needles at one offset stand in the order of drawing and split no pair") {
  NiahConfig config = elsaa(30);
  const NiahSource source(config, {.length = 62}, Split::train, 1);  // no filler at all
  const Example example = example_of(source, 0);
  for (std::size_t at = 0; at < 60; at += 2) {
    CHECK(is_key(example.tokens[at]));
    CHECK(example.tokens[at + 1] >= 114);
  }
}

TEST_CASE("niah: the marked layout has its markers, and the needle at any gap, ends included") {
  std::map<std::int64_t, int> gaps;
  NiahConfig config = marked();
  config.test_examples = 4000;
  const NiahSource many(config, {.length = 16}, Split::test, 2);  // ten distractors, 11 gaps
  for (std::int64_t i = 0; i < 4000; ++i) {
    const Example example = example_of(many, i);
    REQUIRE(example.tokens.size() == 16);
    CHECK(example.tokens[0] == 1);
    CHECK(example.tokens[14] == 3);
    const auto needle = std::find(example.tokens.begin(), example.tokens.end(), 2);
    CHECK(needle[1] == example.tokens[15]);
    CHECK(needle[2] == example.targets[15]);
    CHECK((needle[1] >= 4 && needle[1] < 68 && needle[2] >= 68 && needle[2] < 118));
    const std::int64_t gap = needle - example.tokens.begin() - 1;
    ++gaps[gap];
    CHECK(std::stod(example.group) == doctest::Approx(static_cast<double>(10 * gap / 11) / 10));
    for (const std::int32_t id : example.tokens)
      CHECK((id >= 1 && id < 374));
  }
  CHECK(gaps.size() == 11);
  CHECK(gaps.begin()->first == 0);
  CHECK(gaps.rbegin()->first == 10);
  for (const auto& [gap, n] : gaps)
    CHECK(std::abs(n - 4000.0 / 11) < 5 * std::sqrt(4000.0 / 11));
  CHECK(niah_vocab(config) == 374);
}

TEST_CASE("niah: decoys have other keys and each takes the place of three distractors") {
  const NiahSource source(marked(8), {.length = 64}, Split::train, 2);
  for (std::int64_t i = 0; i < 200; ++i) {
    const Example example = example_of(source, i);
    REQUIRE(example.tokens.size() == 64);
    std::set<std::int32_t> keys;
    int distractors = 0, matches = 0;
    for (std::size_t at = 1; at < 62; ++at) {
      distractors += example.tokens[at] >= 118 ? 1 : 0;
      if (example.tokens[at] != 2) continue;
      keys.insert(example.tokens[at + 1]);
      if (example.tokens[at + 1] != example.tokens[63]) continue;
      ++matches;
      CHECK(example.tokens[at + 2] == example.targets[63]);
    }
    CHECK(keys.size() == 9);
    CHECK(matches == 1);
    CHECK(distractors == 64 - 6 - 3 * 8);
  }
}

TEST_CASE("niah: an example is a pure function of seed, split, length, depth and index") {
  const NiahSource a(elsaa(), {.length = 64}, Split::train, 1),
      b(elsaa(), {.length = 64}, Split::train, 1),
      held_out(elsaa(), {.length = 64}, Split::validation, 1),
      test(elsaa(), {.length = 64, .depth = 0.5}, Split::test, 1),
      other(elsaa(), {.length = 64}, Split::train, 2);
  const Example third = example_of(a, 3);
  (void)example_of(b, 7);
  CHECK(example_of(b, 3).tokens == third.tokens);
  CHECK(example_of(b, 4).tokens != third.tokens);
  CHECK(example_of(held_out, 3).tokens != third.tokens);
  CHECK(example_of(test, 3).tokens != third.tokens);
  CHECK(example_of(other, 3).tokens != third.tokens);
  CHECK(a.size() == 200000);
  CHECK(held_out.size() == 2000);
  CHECK(test.size() == 500);
  CHECK(a.fingerprint() != other.fingerprint());
  CHECK(a.fingerprint() == b.fingerprint());
}

TEST_CASE("niah: settings that no example can meet say what must change") {
  const auto error = [](const NiahConfig& config, NiahSource::Place place) {
    CHECK_THROWS_AS(NiahSource(config, place, Split::train, 0), ConfigError);
    return message_of([&] { NiahSource(config, place, Split::train, 0); });
  };
  CHECK(
      error(elsaa(4), {.length = 9}) ==
      "data.niah.needles is 4, which sequences of 10 to 1048576 tokens have room for, but not one "
      "of 9");
  CHECK(contains(error(marked(2), {.length = 11}), "decoys is 2, which sequences of 12 to"));
  CHECK(contains(error(elsaa(65), {.length = 500}), "needles is 65, but must be in [1, 64]"));
  CHECK(contains(error(marked(64), {.length = 500}), "decoys is 64, but must be in [0, 63]"));
  CHECK(contains(error(elsaa(), {.length = 50, .depth = 1.5}), "depths has 1.5"));
  NiahConfig none = elsaa();
  none.train_examples = 0;
  CHECK(contains(error(none, {.length = 50}), "0 train examples"));
}

TEST_CASE("niah: batches of several lengths come one behind the other, each with its depths") {
  NiahConfig config = elsaa();
  config.test_lengths = {32, 64};
  config.test_examples = 5;
  config.depths = {0.25, 0.75};
  const auto sources = niah_test(config, 32, 1);
  std::vector<EvalLoader::Part> parts;
  for (const auto& source : sources)
    parts.push_back({source.get(), source->seq_len() == 64 ? 2 : 4});
  const EvalLoader loader(parts);
  CHECK(loader.examples() == 20);
  CHECK(loader.batches() == 3 + 3 + 2 + 2);
  CHECK(loader.examples_in(2) == 4);
  CHECK(loader.examples_in(3) == 5);
  CHECK(loader.examples_in(7) == 14);
  CHECK(loader.examples_in(10) == 20);
  const Batch last_of_first = loader.at(2), short_one = loader.at(7);
  CHECK(last_of_first.tokens.shape() == Shape{2, 64});
  CHECK(last_of_first.target_tokens == 1);
  CHECK(last_of_first.groups == std::vector<std::string>{"0.25", ""});
  CHECK(short_one.tokens.shape() == Shape{4, 32});
  CHECK(short_one.first_sample == 14);
  CHECK(short_one.index == 7);
  CHECK(short_one.groups[0] == "0.25");
}

TEST_CASE("niah: the file form holds the examples of the split, one a line") {
  const TempFolder folder;
  const std::string out = folder / "x.jsonl";
  make_niah(elsaa(), {.length = 8, .depth = 0.5}, "test", 3, 5, out);
  const std::string text = read_file(out);
  CHECK(std::count(text.begin(), text.end(), '\n') == 3);
  NiahConfig config = elsaa();
  const Example first =
      example_of(NiahSource(config, {.length = 8, .depth = 0.5}, Split::test, 5), 0);
  std::string line = "{\"tokens\":[";
  for (std::size_t i = 0; i < 8; ++i)
    line += (i ? "," : "") + std::to_string(first.tokens[i]);
  line += "],\"answer\":" + std::to_string(first.targets[7]) + ",\"depth\":0.5}";
  CHECK(text.substr(0, text.find('\n')) == line);
  CHECK_THROWS_AS(make_niah(elsaa(), {.length = 8}, "train", 3, 5, out), IoError);
  make_niah(elsaa(), {.length = 8}, "train", 3, 5, out, Existing::replace);
  CHECK(!contains(read_file(out), "depth"));
  CHECK_THROWS_AS(make_niah(elsaa(), {.length = 8}, "valid", 3, 5, folder / "y"), ConfigError);
  CHECK_THROWS_AS(make_niah(elsaa(), {.length = 8}, "test", 0, 5, folder / "y"), ConfigError);
}
