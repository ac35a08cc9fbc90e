#include "study/bench_task.h"

#include <algorithm>

#include "core/error.h"
#include "core/random.h"
#include "train/tasks/classification_task.h"
#include "train/tasks/decoder_task.h"

namespace fovea::study {

namespace {

constexpr std::int64_t kPool = std::int64_t{1} << 20;

// The configuration's data has no classes: these are the shape's.
train::RunConfig encoder_config(const BenchShape& shape, const train::RunConfig& config) {
  train::RunConfig out = config;
  out.model.kind = "encoder";
  out.model.classes = shape.classes;
  return out;
}

// A task that trains on random tokens and evaluates nothing.
template <class Trained>
class BenchTask final : public Trained {
 public:
  BenchTask(const BenchShape& shape, const train::RunConfig& config)
      : Trained(config),
        source_(shape, config.seed),
        loader_(source_, {config.train.global_batch_size, config.train.micro_batch_size},
                config.seed) {}

  const data::Loader& loader() override { return loader_; }
  const data::EvalLoader& held_out(data::Split /*split*/) override {
    throw IoError("a benchmark has no held-out data");
  }
  std::string data_fingerprint() override { return source_.fingerprint(); }
  std::vector<std::string> summary() override { return {source_.summary()}; }
  train::Report report(const train::Metrics& /*metrics*/) const override { return {}; }

 private:
  RandomTokens source_;
  data::Loader loader_;
};

}  // namespace

RandomTokens::RandomTokens(const BenchShape& shape, std::uint64_t seed)
    : length_(shape.seq),
      classes_(shape.encoder ? shape.classes : 0),
      seed_(seed),
      pool_(static_cast<std::size_t>(kPool + shape.seq + 1)) {
  const NamedStream tokens(seed, "bench.tokens");
  for (std::size_t i = 0; i < pool_.size(); ++i) {
    const std::uint64_t bits = tokens.bits(i);
    pool_[i] = static_cast<std::int32_t>((bits * static_cast<std::uint64_t>(shape.vocab)) >> 32);
  }
}

void RandomTokens::get(std::int64_t i, std::int64_t /*epoch*/, data::Example& example) const {
  const auto index = static_cast<std::uint64_t>(i);
  const auto from = pool_.begin() + static_cast<std::ptrdiff_t>(
                                        NamedStream(seed_, "bench.windows").below(index, kPool));
  const auto length = static_cast<std::ptrdiff_t>(length_);
  example.tokens.assign(from, from + length);
  if (classes_ == 0) {
    example.targets.assign(from + 1, from + 1 + length);
    return;
  }
  example.targets.assign(
      1,
      static_cast<std::int32_t>(
          NamedStream(seed_, "bench.classes").below(index, static_cast<std::uint64_t>(classes_))));
}

std::unique_ptr<train::Task> make_bench_task(const BenchShape& shape,
                                             const train::RunConfig& config) {
  if (shape.encoder)
    return std::make_unique<BenchTask<train::ClassificationTask>>(shape,
                                                                  encoder_config(shape, config));
  return std::make_unique<BenchTask<train::DecoderTask>>(shape, config);
}

}  // namespace fovea::study
