#include "data/mix_source.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/error.h"
#include "core/random.h"
#include "core/text.h"
#include "data/hash.h"

namespace fovea::data {

namespace {

using Wide = unsigned __int128;

constexpr std::uint64_t kCircle = std::uint64_t{1} << 32;
constexpr std::uint64_t kStep = 0x9E3779B1;  // 2^32 / golden ratio, odd: visits are spread evenly

// Sum of floor((a i + b) / m) over i in [0, n), by exchanging the axes as Euclid's algorithm does.
Wide floor_sum(Wide n, Wide m, Wide a, Wide b) {
  Wide sum = 0;
  while (n > 0) {
    sum += n * (n - 1) / 2 * (a / m) + n * (b / m);
    a %= m;
    b %= m;
    const Wide top = a * n + b;
    n = top / m;
    b = top % m;
    std::swap(m, a);
  }
  return sum;
}

// How many of samples 0 .. n-1 fall into [0, end) of the circle.
std::uint64_t falls(std::uint64_t n, std::uint64_t start, std::uint64_t end) {
  const std::uint64_t rounds = n / kCircle, rest = n % kCircle;
  const Wide below = floor_sum(rest, kCircle, kStep, start) + rest -
                     floor_sum(rest, kCircle, kStep, start + kCircle - end);
  return rounds * end + static_cast<std::uint64_t>(below);
}

}  // namespace

MixSource::MixSource(std::vector<Part> parts, std::uint64_t seed)
    : parts_(std::move(parts)), start_(NamedStream(seed, "data.mix").bits(0)) {
  if (parts_.empty()) throw ConfigError("data.mix is empty; give at least one corpus");
  double total = 0;
  for (const Part& part : parts_) {
    if (!(part.weight > 0) || !std::isfinite(part.weight)) {
      throw ConfigError(cat("data.mix has the weight ", part.weight, ", but must be above 0"));
    }
    total += part.weight;
    size_ += part.source->size();
  }
  double sum = 0;
  for (const Part& part : parts_) {
    sum += part.weight;
    ends_.push_back(static_cast<std::uint64_t>(std::llround(sum / total * double{kCircle})));
  }
  ends_.back() = kCircle;
}

MixSource::Place MixSource::place(std::int64_t sample) const {
  const auto s = static_cast<std::uint64_t>(sample);
  const std::uint64_t at = (kStep * (s % kCircle) + start_) % kCircle;
  const auto part =
      static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), at) - ends_.begin());
  const std::uint64_t begin = part == 0 ? 0 : ends_[part - 1];
  return {part, static_cast<std::int64_t>(falls(s, start_, ends_[part]) - falls(s, start_, begin))};
}

void MixSource::get(std::int64_t i, std::int64_t epoch, Example& example) const {
  FOVEA_ASSERT(i >= 0 && i < size_);
  const auto [part, sample] = place(epoch * size_ + i);
  const Source& source = *parts_[part].source;
  source.get(sample % source.size(), sample / source.size(), example);
}

std::int64_t MixSource::target_tokens(std::int64_t i, std::int64_t epoch) const {
  const auto [part, sample] = place(epoch * size_ + i);
  const Source& source = *parts_[part].source;
  return source.target_tokens(sample % source.size(), sample / source.size());
}

std::string MixSource::summary() const {
  std::string out = cat("mix of ", parts_.size(), " corpora");
  std::uint64_t begin = 0;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    out += cat("; ", static_cast<double>(ends_[i] - begin) / double{kCircle}, " of ",
               parts_[i].source->summary());
    begin = ends_[i];
  }
  return out;
}

std::string MixSource::fingerprint() const {
  std::string all = "mix";
  for (const Part& part : parts_)
    all += part.source->fingerprint();
  return hash_hex(xxh3_64(all));
}

JoinedSource::JoinedSource(std::vector<std::unique_ptr<Source>> sources)
    : sources_(std::move(sources)) {
  FOVEA_ASSERT(!sources_.empty());
  std::int64_t total = 0;
  for (const auto& source : sources_)
    ends_.push_back(total += source->size());
}

JoinedSource::Place JoinedSource::place(std::int64_t i) const {
  FOVEA_ASSERT(i >= 0 && i < size());
  const auto at =
      static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), i) - ends_.begin());
  return {*sources_[at], at == 0 ? i : i - ends_[at - 1]};
}

void JoinedSource::get(std::int64_t i, std::int64_t epoch, Example& example) const {
  const Place at = place(i);
  at.source.get(at.i, epoch, example);
}

std::int64_t JoinedSource::target_tokens(std::int64_t i, std::int64_t epoch) const {
  const Place at = place(i);
  return at.source.target_tokens(at.i, epoch);
}

std::string JoinedSource::summary() const {
  std::vector<std::string> parts;
  for (const auto& source : sources_)
    parts.push_back(source->summary());
  return join(parts, "; ");
}

std::string JoinedSource::fingerprint() const {
  std::string all = "joined";
  for (const auto& source : sources_)
    all += source->fingerprint();
  return hash_hex(xxh3_64(all));
}

std::optional<TextCounts> JoinedSource::counts() const {
  TextCounts sum;
  for (const auto& source : sources_) {
    const std::optional<TextCounts> counts = source->counts();
    if (!counts) return std::nullopt;
    sum += *counts;
  }
  return sum;
}

}  // namespace fovea::data
