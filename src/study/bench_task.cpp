#include "study/bench_task.h"

#include <algorithm>

#include "core/error.h"
#include "core/random.h"
#include "kernels/basic.h"
#include "models/build.h"
#include "study/encoder.h"
#include "train/tasks/decoder_task.h"

namespace fovea::study {

namespace {

constexpr std::int64_t kPool = std::int64_t{1} << 20;

data::BatchShape batch_shape(const train::RunConfig& config) {
  return {config.train.global_batch_size, config.train.micro_batch_size};
}

[[noreturn]] void nothing_held_out() {
  throw IoError("a benchmark has no held-out data");
}

class DecoderBench final : public train::DecoderTask {
 public:
  DecoderBench(const BenchShape& shape, const train::RunConfig& config)
      : DecoderTask(config),
        source_(shape, config.seed),
        loader_(source_, batch_shape(config), config.seed) {}

  const data::Loader& loader() override { return loader_; }
  const data::EvalLoader& held_out(data::Split /*split*/) override { nothing_held_out(); }
  std::string data_fingerprint() override { return source_.fingerprint(); }
  std::vector<std::string> summary() override { return {source_.summary()}; }
  train::Report report(const train::Metrics& /*metrics*/) const override { return {}; }

 private:
  RandomTokens source_;
  data::Loader loader_;
};

class EncoderBench final : public train::Task {
 public:
  EncoderBench(const BenchShape& shape, const train::RunConfig& config)
      : shape_(shape),
        source_(shape, config.seed),
        loader_(source_, batch_shape(config), config.seed),
        model_(config.model, shape.classes) {
    model_.set_path("");
  }

  const data::Loader& loader() override { return loader_; }
  const data::EvalLoader& held_out(data::Split /*split*/) override { nothing_held_out(); }
  std::string data_fingerprint() override { return source_.fingerprint(); }
  std::int64_t vocabulary() const override { return shape_.vocab; }
  nn::Module& model() override { return model_; }
  train::Loss forward(Ctx& ctx, const data::Batch& batch) override {
    const std::int64_t rows = batch.targets.size(0);
    const Tensor classes = ctx.empty({rows, 1}, DType::i32, "classes");
    FOVEA_ON(ctx.device,
             copy(ctx.stream.ref(), classes.view(), batch.targets.slice(1, 0, 1).view()));
    CrossEntropy loss =
        cross_entropy(ctx, model_.logits(ctx, batch.tokens), classes.reshape({rows}));
    return {std::move(loss.sum), batch.target_tokens, {}};
  }
  void score(Ctx& /*ctx*/, const data::Batch& /*batch*/, train::Metrics& /*into*/) override {}
  train::Report report(const train::Metrics& /*metrics*/) const override { return {}; }
  double step_flops(bool /*executed*/) const override { return 0; }

 private:
  BenchShape shape_;
  RandomTokens source_;
  data::Loader loader_;
  Encoder model_;
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
  example.targets.assign(static_cast<std::size_t>(length_), data::kIgnored);
  example.targets[0] = static_cast<std::int32_t>(
      NamedStream(seed_, "bench.classes").below(index, static_cast<std::uint64_t>(classes_)));
}

std::unique_ptr<train::Task> make_bench_task(const BenchShape& shape,
                                             const train::RunConfig& config) {
  if (shape.encoder) return std::make_unique<EncoderBench>(shape, config);
  return std::make_unique<DecoderBench>(shape, config);
}

}  // namespace fovea::study
