#include "data/niah.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "data/draws.h"
#include "data/hash.h"

namespace fovea::data {

namespace {

// Of each example; longer ones than 2^20 tokens are refused.
constexpr int kDrawBits = 21;

namespace elsaa {
constexpr int kFillers = 50, kKeys = 50, kValues = 114, kSep = 178, kVocab = 179;
}
namespace marked {
constexpr int kBos = 1, kNeedle = 2, kQuery = 3, kKeys = 4, kValues = 68, kDistractors = 118,
              kVocab = 374;
}
constexpr int kKeyCount = 64;  // of both layouts

// Groups of tokens at offsets among fillers: those before it are counted by the offset.
class Haystack {
 public:
  void add(std::int64_t offset, std::vector<std::int32_t> tokens) {
    needles_.push_back({offset, std::move(tokens)});
  }
  // Appends `fillers`, which `filler` draws, with the needles among them.
  template <class F>
  void put(std::int64_t fillers, F&& filler, std::vector<std::int32_t>& into) {
    std::stable_sort(needles_.begin(), needles_.end(),
                     [](const Needle& a, const Needle& b) { return a.offset < b.offset; });
    auto next = needles_.begin();
    for (std::int64_t i = 0; i <= fillers; ++i) {
      for (; next != needles_.end() && next->offset == i; ++next)
        into.insert(into.end(), next->tokens.begin(), next->tokens.end());
      if (i < fillers) into.push_back(filler());
    }
    FOVEA_ASSERT(next == needles_.end());
  }

 private:
  struct Needle {
    std::int64_t offset;
    std::vector<std::int32_t> tokens;
  };
  std::vector<Needle> needles_;
};

// Tokens of an example that are no fillers.
int fixed_tokens(const NiahConfig& c) {
  if (c.layout == NiahLayout::marked) return 6 + 3 * c.decoys;
  return 2 * c.needles + (c.generator == NiahGenerator::reference ? 1 : 2);
}

void check(const NiahConfig& c, const NiahSource::Place& place) {
  const auto refuse = [](const auto&... text) { throw ConfigError(cat("data.niah.", text...)); };
  const bool is_elsaa = c.layout == NiahLayout::elsaa;
  if (is_elsaa && (c.needles < 1 || c.needles > kKeyCount))
    refuse("needles is ", c.needles, ", but must be in [1, ", kKeyCount, "], for keys differ");
  if (!is_elsaa && (c.decoys < 0 || c.decoys >= kKeyCount))
    refuse("decoys is ", c.decoys, ", but must be in [0, ", kKeyCount - 1, "], for keys differ");
  const int least = niah_least_length(c);
  if (place.length < least || place.length > 1 << (kDrawBits - 1)) {
    refuse(is_elsaa ? "needles" : "decoys", " is ", is_elsaa ? c.needles : c.decoys,
           ", which sequences of ", least, " to ", 1 << (kDrawBits - 1),
           " tokens have room for, but not one of ", place.length);
  }
  if (is_elsaa && place.depth > 1) refuse("depths has ", place.depth, ", but must be in [0, 1]");
}

std::int64_t share(double fraction, std::int64_t of) {
  return static_cast<std::int64_t>(std::floor(fraction * static_cast<double>(of)));
}

// The tenth of `places` that `at` lies in, from below.
double tenth(std::int64_t at, std::int64_t places) {
  const std::int64_t tenths = 10 * at / places;
  return static_cast<double>(tenths) / 10;
}

}  // namespace

NiahSource::NiahSource(const NiahConfig& config, Place place, Split split, std::uint64_t seed)
    : config_(config),
      place_(place),
      test_(split == Split::test),
      size_(split == Split::train        ? config.train_examples
            : split == Split::validation ? config.validation_examples
                                         : config.test_examples),
      seed_(seed),
      stream_(cat("niah.", name_of(split))) {
  check(config, place);
  if (size_ < 1)
    throw ConfigError(cat("data.niah has ", size_, " ", name_of(split), " examples, but needs 1"));
  if (test_) stream_ += cat(".", place.length);
  if (test_ && place.depth >= 0) stream_ += cat(".", place.depth);
}

// Both return the depth, for reports.
double NiahSource::put_elsaa(std::int64_t i, std::vector<std::int32_t>& tokens,
                             std::int32_t& target) const {
  Draws draws(seed_, stream_, i, kDrawBits);
  const bool reference = config_.generator == NiahGenerator::reference;
  const std::int64_t fillers = place_.length - fixed_tokens(config_);
  const std::int64_t from = share(0.05, fillers), to = share(0.95, fillers);
  const std::vector<std::int32_t> keys =
      draws.distinct(elsaa::kKeys, elsaa::kValues, config_.needles);
  Haystack haystack;
  std::vector<std::int32_t> values;
  std::vector<std::int64_t> offsets;
  values.reserve(keys.size());
  for (const std::int32_t key : keys)
    values.push_back(reference ? key + (elsaa::kValues - elsaa::kKeys)
                               : draws.id_in(elsaa::kValues, elsaa::kSep));
  for (std::size_t k = 0; k < keys.size(); ++k) {
    const auto drawn =
        from + static_cast<std::int64_t>(draws.below(static_cast<std::uint64_t>(to - from + 1)));
    std::int64_t offset = place_.depth >= 0 ? share(place_.depth, fillers) : drawn;
    if (reference && config_.needles == 1) offset = fillers - 2;
    offsets.push_back(offset);
    haystack.add(offset, {keys[k], values[k]});
  }
  const std::size_t asked = draws.below(keys.size());
  haystack.put(
      fillers, [&] { return draws.id_in(0, elsaa::kFillers); }, tokens);
  tokens.push_back(elsaa::kSep);
  if (!reference) tokens.push_back(keys[asked]);
  target = reference ? keys[asked] : values[asked];
  return place_.depth >= 0 ? place_.depth : tenth(offsets[asked], fillers + 1);
}

double NiahSource::put_marked(std::int64_t i, std::vector<std::int32_t>& tokens,
                              std::int32_t& target) const {
  Draws draws(seed_, stream_, i, kDrawBits);
  const std::int64_t fillers = place_.length - fixed_tokens(config_);
  const std::vector<std::int32_t> keys =
      draws.distinct(marked::kKeys, marked::kValues, 1 + config_.decoys);
  Haystack haystack;
  std::int64_t gap = 0;
  for (std::size_t k = 0; k < keys.size(); ++k) {
    const std::int32_t value = draws.id_in(marked::kValues, marked::kDistractors);
    const auto at = static_cast<std::int64_t>(draws.below(static_cast<std::uint64_t>(fillers + 1)));
    haystack.add(at, {marked::kNeedle, keys[k], value});
    if (k > 0) continue;
    gap = at;
    target = value;
  }
  tokens.push_back(marked::kBos);
  haystack.put(
      fillers, [&] { return draws.id_in(marked::kDistractors, marked::kVocab); }, tokens);
  tokens.push_back(marked::kQuery);
  tokens.push_back(keys.front());
  return tenth(gap, fillers + 1);
}

void NiahSource::get(std::int64_t i, std::int64_t /*epoch*/, Example& example) const {
  FOVEA_ASSERT(i >= 0 && i < size_);
  const auto length = static_cast<std::size_t>(place_.length);
  example.tokens.clear();
  example.tokens.reserve(length);
  std::int32_t target = 0;
  const double depth = config_.layout == NiahLayout::elsaa ? put_elsaa(i, example.tokens, target)
                                                           : put_marked(i, example.tokens, target);
  FOVEA_ASSERT(example.tokens.size() == length);
  example.targets.assign(length, kIgnored);
  example.targets.back() = target;
  example.group = test_ ? cat(depth) : std::string();
}

std::string NiahSource::summary() const {
  const bool is_elsaa = config_.layout == NiahLayout::elsaa;
  return cat("niah: ", size_, " examples of ", place_.length, " tokens, layout ",
             is_elsaa ? "elsaa" : "marked",
             config_.generator == NiahGenerator::reference ? " (reference generator)" : "", ", ",
             is_elsaa ? config_.needles : config_.decoys, is_elsaa ? " needles" : " decoys",
             place_.depth >= 0 ? cat(", depth ", place_.depth) : std::string(), ", vocabulary ",
             niah_vocab(config_));
}

std::string NiahSource::fingerprint() const {
  return hash_hex(xxh3_64(cat(summary(), ", ", stream_, ", seed ", seed_)));
}

IdRange niah_values(const NiahConfig& config) {
  if (config.layout == NiahLayout::marked) return {marked::kValues, marked::kDistractors};
  if (config.generator == NiahGenerator::reference) return {elsaa::kKeys, elsaa::kValues};
  return {elsaa::kValues, elsaa::kSep};
}

int niah_vocab(const NiahConfig& config) {
  return config.layout == NiahLayout::elsaa ? elsaa::kVocab : marked::kVocab;
}

int niah_least_length(const NiahConfig& config) {
  const bool reference =
      config.layout == NiahLayout::elsaa && config.generator == NiahGenerator::reference;
  return fixed_tokens(config) + (reference ? 2 : 0);
}

std::vector<std::unique_ptr<Source>> niah_test(const NiahConfig& config, int seq_len,
                                               std::uint64_t seed) {
  std::vector<int> lengths = config.test_lengths;
  if (lengths.empty()) lengths.push_back(seq_len);
  std::sort(lengths.begin(), lengths.end(), std::greater<>());
  const bool fixed = config.layout == NiahLayout::elsaa && !config.depths.empty();
  const std::vector<double> depths = fixed ? config.depths : std::vector<double>{-1};
  std::vector<std::unique_ptr<Source>> out;
  for (const int length : lengths) {
    for (const double depth : depths) {
      out.push_back(std::make_unique<NiahSource>(config, NiahSource::Place{length, depth},
                                                 Split::test, seed));
    }
  }
  return out;
}

}  // namespace fovea::data
