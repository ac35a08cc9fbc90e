#include "data/mqar.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>

#include <doctest/doctest.h>

#include "core/error.h"
#include "temp_folder.h"

using namespace fovea;
using namespace fovea::data;
using fovea::test::contains;
using fovea::test::message_of;

namespace {

MqarConfig config_of(int vocab, int pairs) {
  MqarConfig config;
  config.vocab = vocab;
  config.pairs = pairs;
  return config;
}

Example example_of(const Source& source, std::int64_t i) {
  Example example;
  source.get(i, 0, example);
  return example;
}

}  // namespace

TEST_CASE("mqar: keys and values are distinct, each in its half of the vocabulary") {
  const MqarSource source(config_of(70, 16), 64, Split::train, 1);
  for (std::int64_t i = 0; i < 200; ++i) {
    const Example example = example_of(source, i);
    std::set<std::int32_t> keys, values;
    for (std::size_t k = 0; k < 16; ++k) {
      keys.insert(example.tokens[2 * k]);
      values.insert(example.tokens[2 * k + 1]);
    }
    CHECK(keys.size() == 16);
    CHECK(values.size() == 16);
    CHECK((*keys.begin() >= 1 && *keys.rbegin() < 35));
    CHECK((*values.begin() >= 35 && *values.rbegin() < 70));
  }
}

TEST_CASE("mqar: each key appears exactly twice, and its label is the value after the first time") {
  const MqarSource source(config_of(512, 4), 64, Split::train, 1);
  for (std::int64_t i = 0; i < 200; ++i) {
    const Example example = example_of(source, i);
    std::map<std::int32_t, std::size_t> first;
    for (std::size_t k = 0; k < 4; ++k)
      first[example.tokens[2 * k]] = 2 * k;
    int queries = 0;
    for (std::size_t at = 0; at < 64; ++at) {
      if (example.targets[at] == kIgnored) {
        if (at >= 8) CHECK(example.tokens[at] == 0);
        continue;
      }
      ++queries;
      CHECK(at >= 8);
      CHECK(at % 2 == 0);
      const auto key = first.find(example.tokens[at]);
      REQUIRE(key != first.end());
      CHECK(example.targets[at] == example.tokens[key->second + 1]);
    }
    CHECK(queries == source.target_tokens(i, 0));
    for (const auto& [key, at] : first)
      CHECK(std::count(example.tokens.begin(), example.tokens.end(), key) == 2);
  }
}

TEST_CASE("mqar: the first key's slot follows a x^(a-1) and the second's the law without it") {
  const MqarSource source(config_of(512, 4), 64, Split::train, 9);
  constexpr int kExamples = 20000, kSlots = 28;
  std::vector<double> weights, first(kSlots, 0), second(kSlots, 0), expected_second(kSlots, 0);
  double total = 0;
  for (int x = 1; x <= kSlots; ++x)
    total += weights.emplace_back(0.01 * std::pow(x, 0.01 - 1));
  for (int a = 0; a < kSlots; ++a) {
    for (int b = 0; b < kSlots; ++b) {
      if (a != b) expected_second[b] += weights[a] / total * weights[b] / (total - weights[a]);
    }
  }
  for (std::int64_t i = 0; i < kExamples; ++i) {
    const Example example = example_of(source, i);
    for (int slot = 0; slot < kSlots; ++slot) {
      const std::int32_t key = example.tokens[8 + 2 * slot];
      if (key == example.tokens[0]) ++first[slot];
      if (key == example.tokens[2]) ++second[slot];
    }
  }
  for (int slot = 0; slot < kSlots; ++slot) {
    const auto within = [&](double count, double p) {
      // Five standard errors: a false alarm of one slot in two million.
      return std::abs(count / kExamples - p) < 5 * std::sqrt(p * (1 - p) / kExamples);
    };
    CAPTURE(slot);
    CHECK(within(first[slot], weights[slot] / total));
    CHECK(within(second[slot], expected_second[slot]));
  }
}

TEST_CASE("mqar: an example is a pure function of seed, split and index") {
  const MqarSource a(config_of(512, 4), 64, Split::train, 1),
      b(config_of(512, 4), 64, Split::train, 1);
  const MqarSource test(config_of(512, 4), 64, Split::test, 1),
      other(config_of(512, 4), 64, Split::train, 2);
  const Example third = example_of(a, 3);
  (void)example_of(b, 7);
  CHECK(example_of(b, 3).tokens == third.tokens);
  CHECK(example_of(b, 4).tokens != third.tokens);
  CHECK(example_of(test, 3).tokens != third.tokens);
  CHECK(example_of(other, 3).tokens != third.tokens);
  CHECK(a.size() == 100000);
  CHECK(test.size() == 3000);
}

TEST_CASE("mqar: random non-queries fill the space and change neither pairs nor labels") {
  MqarConfig config = config_of(512, 4);
  const Example plain = example_of(MqarSource(config, 64, Split::train, 1), 0);
  config.random_non_queries = true;
  const MqarSource source(config, 64, Split::train, 1);
  const Example filled = example_of(source, 0);
  CHECK(std::equal(plain.tokens.begin(), plain.tokens.begin() + 8, filled.tokens.begin()));
  CHECK(std::count(filled.tokens.begin(), filled.tokens.end(), 0) < 4);
  int queries = 0;
  for (std::size_t at = 0; at < 64; ++at) {
    if (filled.targets[at] == kIgnored) continue;
    ++queries;
    for (std::size_t k = 0; k < 4; ++k) {
      if (filled.tokens[at] == filled.tokens[2 * k])
        CHECK(filled.targets[at] == filled.tokens[2 * k + 1]);
    }
  }
  CHECK(queries == 4);
}

TEST_CASE("mqar: the tightest settings are filled completely") {
  const MqarSource source(config_of(17, 4), 16, Split::train, 1);
  for (std::int64_t i = 0; i < 50; ++i) {
    const Example example = example_of(source, i);
    for (std::size_t at = 8; at < 16; at += 2)
      CHECK(example.targets[at] != kIgnored);
  }
}

TEST_CASE("mqar: settings that no example can meet say what must change") {
  const auto error = [](MqarConfig config, int seq_len) {
    CHECK_THROWS_AS(MqarSource(config, seq_len, Split::train, 0), ConfigError);
    return message_of([&] { MqarSource(config, seq_len, Split::train, 0); });
  };
  CHECK(error(config_of(512, 17), 64) ==
        "data.mqar.pairs is 17, but must be at most 16 (a quarter of the sequence length 64)");
  CHECK(error(config_of(64, 4), 64) ==
        "data.mqar.vocab is 64, but must be above the sequence length (64)");
  CHECK(contains(error(config_of(512, 4), 63), "must be even"));
  CHECK(contains(error(config_of(512, 0), 64), "at least 1"));
  MqarConfig config = config_of(512, 4);
  config.power = 0;
  CHECK(contains(error(config, 64), ".power is 0"));
}

TEST_CASE("mqar: the file form holds the examples of the split, one a line") {
  const fovea::test::TempFolder folder;
  const std::string out = folder / "x.jsonl";
  make_mqar(config_of(20, 2), 8, "test", 3, 5, out);
  const std::string text = read_file(out);
  CHECK(std::count(text.begin(), text.end(), '\n') == 3);
  const Example first = example_of(MqarSource(config_of(20, 2), 8, Split::test, 5), 0);
  std::string line = "{\"tokens\":[";
  for (std::size_t i = 0; i < 8; ++i)
    line += (i ? "," : "") + std::to_string(first.tokens[i]);
  line += "],\"targets\":[";
  for (std::size_t i = 0; i < 8; ++i)
    line += (i ? "," : "") + std::to_string(first.targets[i]);
  CHECK(text.substr(0, text.find('\n')) == line + "]}");
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
}

TEST_CASE("mqar: a file is not overwritten unless asked") {
  const fovea::test::TempFolder folder;
  const std::string out = folder.put("x.jsonl", "mine");
  CHECK_THROWS_AS(make_mqar(config_of(20, 2), 8, "train", 3, 5, out), IoError);
  CHECK(read_file(out) == "mine");
  make_mqar(config_of(20, 2), 8, "train", 3, 5, out, Existing::replace);
  CHECK(read_file(out).starts_with("{\"tokens\":["));
  CHECK_THROWS_AS(make_mqar(config_of(20, 2), 8, "valid", 3, 5, folder / "y"), ConfigError);
  CHECK_THROWS_AS(make_mqar(config_of(20, 2), 8, "train", 0, 5, folder / "y"), ConfigError);
}
