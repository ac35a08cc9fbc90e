#pragma once
// What a benchmark trains on: random tokens, a fresh batch every step.

#include <memory>
#include <vector>

#include "data/source.h"
#include "study/bench_shape.h"
#include "train/task.h"

namespace fovea::study {

// Windows into a pool of uniformly random tokens; a pure function of (seed, example). The targets
// are the next tokens or, of a classifier, one random class.
class RandomTokens final : public data::Source {
 public:
  RandomTokens(const BenchShape& shape, std::uint64_t seed);

  std::int64_t size() const override { return std::int64_t{1} << 30; }
  int seq_len() const override { return static_cast<int>(length_); }
  int classes() const override { return classes_; }
  bool is_padded() const override { return false; }
  void get(std::int64_t i, std::int64_t epoch, data::Example& example) const override;
  std::int64_t target_tokens(std::int64_t, std::int64_t) const override {
    return classes_ > 0 ? 1 : length_;
  }
  std::string summary() const override { return "random tokens"; }
  std::string fingerprint() const override { return "0000000000000000"; }

 private:
  std::int64_t length_;
  int classes_;
  std::uint64_t seed_;
  std::vector<std::int32_t> pool_;
};

// The shape's model on random tokens: a decoder with the next token's loss, or an encoder with the
// class's. `config` is bench_config() of the shape. Nothing is held out: held_out() throws IoError.
std::unique_ptr<train::Task> make_bench_task(const BenchShape& shape,
                                             const train::RunConfig& config);

}  // namespace fovea::study
