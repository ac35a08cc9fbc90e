#include "data/mix_source.h"

#include <cmath>
#include <map>
#include <set>

#include <doctest/doctest.h>

#include "core/error.h"
#include "data/loader.h"
#include "temp_folder.h"

using namespace fovea;
using namespace fovea::data;
using fovea::test::contains;
using fovea::test::message_of;
using fovea::test::TempFolder;

namespace {

// Example i of epoch e is the tokens name, i, e.
class Named final : public Source {
 public:
  Named(std::int32_t name, std::int64_t size) : name_(name), size_(size) {}
  std::int64_t size() const override { return size_; }
  int seq_len() const override { return 3; }
  void get(std::int64_t i, std::int64_t epoch, Example& example) const override {
    example.tokens = {name_, static_cast<std::int32_t>(i), static_cast<std::int32_t>(epoch)};
    example.targets = {1, 1, 1};
  }
  std::int64_t target_tokens(std::int64_t, std::int64_t) const override { return name_ + 1; }
  std::string summary() const override { return "named"; }
  std::string fingerprint() const override { return std::to_string(name_); }

 private:
  std::int32_t name_;
  std::int64_t size_;
};

MixSource mix(const std::vector<std::pair<std::int64_t, double>>& corpora, std::uint64_t seed = 1) {
  std::vector<MixSource::Part> parts;
  for (const auto& [size, weight] : corpora)
    parts.push_back(
        {std::make_unique<Named>(static_cast<std::int32_t>(parts.size()), size), weight});
  return MixSource(std::move(parts), seed);
}

}  // namespace

TEST_CASE("every run of samples has each corpus as often as its weight says, to within a few") {
  const MixSource source = mix({{100, 5}, {10, 3}, {1000, 0.002}, {7, 1.998}});
  std::vector<double> seen(4, 0);
  for (std::int64_t s = 0; s < 200'000; ++s) {
    const MixSource::Place place = source.place(s);
    CHECK(place.sample == static_cast<std::int64_t>(seen[place.part]));  // counted by computing
    ++seen[place.part];
    const double n = static_cast<double>(s + 1);
    for (std::size_t c = 0; c < 4; ++c) {
      const double expected = n * (c == 0 ? 0.5 : c == 1 ? 0.3 : c == 2 ? 0.0002 : 0.1998);
      if (std::fabs(seen[c] - expected) > 6) FAIL("corpus " << c << " after " << n);
    }
  }
}

TEST_CASE("a round of 2^32 samples has the shares exactly, and the next one goes on") {
  const MixSource source = mix({{1, 0.75}, {1, 0.25}}, 9);
  const std::int64_t round = std::int64_t{1} << 32;
  for (const std::int64_t s : {std::int64_t{0}, std::int64_t{12345}}) {
    const MixSource::Place a = source.place(s), b = source.place(s + 5 * round);
    CHECK(a.part == b.part);
    CHECK(b.sample - a.sample == 5 * (a.part == 0 ? 3 * round / 4 : round / 4));
  }
}

TEST_CASE("a corpus goes through its examples epoch by epoch") {
  const MixSource source = mix({{13, 2}, {4, 1}});
  CHECK(source.size() == 17);
  std::map<std::pair<int, int>, std::multiset<int>> seen;  // corpus, epoch
  Example example;
  for (std::int64_t epoch = 0; epoch < 60; ++epoch) {
    for (std::int64_t i = 0; i < source.size(); ++i) {
      source.get(i, epoch, example);
      seen[{example.tokens[0], example.tokens[2]}].insert(example.tokens[1]);
      CHECK(source.target_tokens(i, epoch) == example.tokens[0] + 1);
    }
  }
  for (int epoch = 0; epoch < 40; ++epoch) {
    CHECK(seen[{0, epoch}].size() == 13);
    CHECK(std::set<int>(seen[{0, epoch}].begin(), seen[{0, epoch}].end()).size() == 13);
    CHECK(seen[{1, epoch}].size() == 4);
  }
}

TEST_CASE("the mix depends on the seed and on nothing that was asked before") {
  const MixSource a = mix({{13, 2}, {4, 1}}, 1), b = mix({{13, 2}, {4, 1}}, 2);
  int different = 0;
  for (std::int64_t s = 0; s < 100; ++s)
    different += a.place(s).part != b.place(s).part;
  CHECK(different > 10);
  CHECK(a.place(77).sample == mix({{13, 2}, {4, 1}}, 1).place(77).sample);
}

TEST_CASE("a micro-batch of a mix is the same in every grouping") {
  const MixSource source = mix({{31, 2}, {7, 1}});
  const Loader whole(source, {.global_batch = 6, .micro_batch = 6}, 4);
  const Loader parts(source, {.global_batch = 6, .micro_batch = 2}, 4);
  for (std::int64_t step = 0; step < 20; ++step) {
    std::vector<double> joined;
    for (std::int64_t micro = 0; micro < 3; ++micro) {
      for (const double value : parts.at(step, micro).tokens.values())
        joined.push_back(value);
    }
    CHECK(joined == whole.at(step, 0).tokens.values());
  }
}

TEST_CASE("weights that mean nothing are refused") {
  CHECK_THROWS_AS(mix({}), ConfigError);
  for (const double weight : {0.0, -1.0, std::nan(""), HUGE_VAL})
    CHECK_THROWS_AS(mix({{3, 1}, {3, weight}}), ConfigError);
}

TEST_CASE("data.mix trains on all corpora by weight and evaluates them one after the other") {
  const TempFolder folder;
  DataConfig config;
  config.mix = {{folder.put("a.txt", std::string(8000, 'a')), 3},
                {folder.put("b.txt", std::string(4000, 'b')), 1}};
  const auto train = make_source(config, 16, Split::train, 1);
  const Loader loader(*train, {.global_batch = 40, .micro_batch = 40}, 1);
  double a = 0, all = 0;
  for (std::int64_t step = 0; step < 50; ++step) {
    const Batch batch = loader.at(step, 0);
    for (const double token : batch.tokens.values()) {
      a += token == 'a';
      ++all;
    }
  }
  CHECK(a / all == doctest::Approx(0.75).epsilon(0.02));
  CHECK(contains(train->summary(), "mix of 2 corpora; 0.75 of text"));
  const auto held_out = make_source(config, 16, Split::validation, 1);
  REQUIRE(held_out->counts());
  CHECK(held_out->counts()->bytes == 1200);
  Example example;
  held_out->get(0, 0, example);
  CHECK(example.tokens[0] == 'a');
  held_out->get(held_out->size() - 1, 0, example);
  CHECK(example.tokens[0] == 'b');
  std::swap(config.mix[0], config.mix[1]);
  CHECK(make_source(config, 16, Split::train, 1)->fingerprint() != train->fingerprint());
}

TEST_CASE("token files of unknown tokenizers may be mixed") {
  const TempFolder folder;
  DataConfig config;
  config.kind = "tokens";
  config.vocab_size = 300;
  const std::string ids(400, '\0');
  config.mix = {{folder.put("a.bin", ids), 1}, {folder.put("b.bin", ids), 1}};
  CHECK(make_source(config, 16, Split::train, 1)->size() > 0);  // both unknown
}
