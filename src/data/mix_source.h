#pragma once
// Several sources as one.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/source.h"

namespace fovea::data {

// Training: sample s (epoch x size() + i) is the j-th sample of one of the corpora, chosen by
// weight. Which one is a pure function of (seed, s): the place of a s + b in the circle of 2^32,
// with a odd, falls into the corpus' share of it; j is how often that was so before, computed and
// not counted. So 2^32 samples have every corpus exactly as often as its weight, rounded to
// 2^-32, says, and any s samples to within a few. A corpus' j-th sample is its example j mod size
// of its epoch j / size. An epoch of the mix has as many samples as the corpora have examples.
class MixSource final : public Source {
 public:
  struct Part {
    std::unique_ptr<Source> source;
    double weight = 1;  // above 0
  };
  // Throws ConfigError: no parts, or a weight that is not positive and finite.
  MixSource(std::vector<Part> parts, std::uint64_t seed);

  std::int64_t size() const override { return size_; }
  int seq_len() const override { return parts_.front().source->seq_len(); }
  void get(std::int64_t i, std::int64_t epoch, Example& example) const override;
  std::int64_t target_tokens(std::int64_t i, std::int64_t epoch) const override;
  std::string summary() const override;
  std::string fingerprint() const override;
  bool has_segments() const override { return parts_.front().source->has_segments(); }

  struct Place {
    std::size_t part;
    std::int64_t sample;  // j
  };
  Place place(std::int64_t sample) const;

 private:
  std::vector<Part> parts_;
  std::vector<std::uint64_t> ends_;  // of the shares, of 2^32
  std::uint64_t start_;              // b
  std::int64_t size_ = 0;
};

// Evaluation: the examples of all sources, one behind the other.
class JoinedSource final : public Source {
 public:
  explicit JoinedSource(std::vector<std::unique_ptr<Source>> sources);  // at least one

  std::int64_t size() const override { return ends_.back(); }
  int seq_len() const override { return sources_.front()->seq_len(); }
  void get(std::int64_t i, std::int64_t epoch, Example& example) const override;
  std::int64_t target_tokens(std::int64_t i, std::int64_t epoch) const override;
  std::string summary() const override;
  std::string fingerprint() const override;
  bool has_segments() const override { return sources_.front()->has_segments(); }
  std::optional<TextCounts> counts() const override;

 private:
  struct Place {
    const Source& source;
    std::int64_t i;
  };
  Place place(std::int64_t i) const;

  std::vector<std::unique_ptr<Source>> sources_;
  std::vector<std::int64_t> ends_;
};

}  // namespace fovea::data
