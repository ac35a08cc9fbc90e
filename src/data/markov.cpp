#include "data/markov.h"

#include <cmath>

#include "core/error.h"
#include "core/random.h"
#include "core/text.h"
#include "data/hash.h"

namespace fovea::data {

namespace {

// Which successor three random bits choose: probabilities 1/2, 1/4, 1/8, 1/8 without rounding.
constexpr int kChoice[8] = {0, 0, 0, 0, 1, 1, 2, 3};

}  // namespace

MarkovSource::MarkovSource(const MarkovConfig& config, int seq_len, Split split, std::uint64_t seed)
    : vocab_(config.vocab),
      seq_len_(seq_len),
      size_(split == Split::train ? config.train_examples : config.test_examples),
      seed_(seed),
      stream_(split == Split::train        ? "markov.train"
              : split == Split::validation ? "markov.validation"
                                           : "markov.test") {
  if (vocab_ < 4)
    throw ConfigError(cat("data.markov.vocab is ", vocab_, ", but must be at least 4"));
  if (size_ < 1)
    throw ConfigError(
        cat("data.markov has ", size_, " ", name_of(split), " examples, but needs 1"));
  for (int state = 0; state < vocab_; ++state) {
    const Permutation order(static_cast<std::uint64_t>(vocab_), seed, cat("markov.table.", state));
    for (std::uint64_t rank = 0; rank < 4; ++rank)
      table_.push_back(static_cast<std::int32_t>(order.at(rank)));
  }
}

void MarkovSource::get(std::int64_t i, std::int64_t /*epoch*/, Example& example) const {
  FOVEA_ASSERT(i >= 0 && i < size_);
  const NamedStream stream(seed_, stream_);
  const auto length = static_cast<std::size_t>(seq_len_);
  const std::uint64_t first = static_cast<std::uint64_t>(i) * (length + 1);
  example.tokens.resize(length);
  example.targets.resize(length);
  auto state = static_cast<std::int32_t>(stream.below(first, static_cast<std::uint64_t>(vocab_)));
  for (std::size_t t = 0; t < length; ++t) {
    example.tokens[t] = state;
    state = successors(state)[kChoice[stream.bits64(first + 1 + t) >> 61]];
    example.targets[t] = state;
  }
}

std::string MarkovSource::summary() const {
  return cat("markov: ", size_, " examples of ", seq_len_, " tokens, vocabulary ", vocab_,
             ", entropy ", entropy(), " nats a token");
}

std::string MarkovSource::fingerprint() const {
  return hash_hex(xxh3_64(cat(summary(), ", ", stream_, ", seed ", seed_)));
}

double MarkovSource::entropy() {
  return 1.75 * std::log(2.0);
}

}  // namespace fovea::data
