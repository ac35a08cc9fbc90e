#include "data/loader.h"

#include <algorithm>
#include <optional>
#include <string>

#include "core/error.h"
#include "core/random.h"
#include "core/text.h"

namespace fovea::data {

namespace {

Batch empty_batch(std::int64_t rows, const Source& source) {
  const auto filled = [&](std::int32_t value) {
    Tensor out = Tensor::empty({rows, source.seq_len()}, DType::i32, kCpu, "batch");
    std::fill_n(out.data<std::int32_t>(), out.numel(), value);
    return out;
  };
  Batch batch;
  batch.tokens = filled(0);
  batch.targets = filled(kIgnored);
  if (source.has_segments()) {
    batch.segments = filled(0);
    batch.positions = filled(0);
  }
  return batch;
}

// Segments and positions of a row; what follows a short one is a segment of its own.
void put_segments(Batch& batch, std::int64_t row, const Example& example) {
  const std::int64_t length = batch.tokens.size(1);
  const auto count = static_cast<std::int64_t>(example.segments.size());
  FOVEA_ASSERT(count == static_cast<std::int64_t>(example.tokens.size()) &&
               example.positions.size() == example.segments.size());
  std::int32_t* const segments = batch.segments.data<std::int32_t>() + row * length;
  std::int32_t* const positions = batch.positions.data<std::int32_t>() + row * length;
  std::copy(example.segments.begin(), example.segments.end(), segments);
  std::copy(example.positions.begin(), example.positions.end(), positions);
  const std::int32_t next = count == 0 ? 0 : example.segments.back() + 1;
  for (std::int64_t at = count; at < length; ++at) {
    segments[at] = next;
    positions[at] = static_cast<std::int32_t>(at - count);
  }
}

void put_row(Batch& batch, std::int64_t row, const Example& example) {
  const std::int64_t length = batch.tokens.size(1);
  FOVEA_ASSERT(example.tokens.size() == example.targets.size() &&
               static_cast<std::int64_t>(example.tokens.size()) <= length);
  std::copy(example.tokens.begin(), example.tokens.end(),
            batch.tokens.data<std::int32_t>() + row * length);
  std::copy(example.targets.begin(), example.targets.end(),
            batch.targets.data<std::int32_t>() + row * length);
  batch.target_tokens += static_cast<std::int64_t>(example.targets.size()) -
                         std::count(example.targets.begin(), example.targets.end(), kIgnored);
  if (batch.segments.defined()) put_segments(batch, row, example);
}

// Walks the shuffled samples of a run; the current epoch's permutation is made once.
class Shuffle {
 public:
  Shuffle(std::int64_t size, std::uint64_t seed) : size_(size), seed_(seed) {}
  struct Place {
    std::int64_t i, epoch;
  };
  Place at(std::int64_t sample) {
    const std::int64_t epoch = sample / size_;
    if (!order_ || epoch != epoch_) {
      order_.emplace(static_cast<std::uint64_t>(size_), seed_, cat("data.shuffle.", epoch));
      epoch_ = epoch;
    }
    return {static_cast<std::int64_t>(order_->at(static_cast<std::uint64_t>(sample % size_))),
            epoch};
  }

 private:
  std::int64_t size_;
  std::uint64_t seed_;
  std::int64_t epoch_ = 0;
  std::optional<Permutation> order_;
};

}  // namespace

Loader::Loader(const Source& source, BatchShape shape, std::uint64_t seed)
    : source_(source), shape_(shape), seed_(seed) {
  if (shape.micro_batch < 1 || shape.global_batch < 1 ||
      shape.global_batch % shape.micro_batch != 0) {
    throw ConfigError(cat("train.global_batch_size is ", shape.global_batch,
                          ", but must be a multiple of train.micro_batch_size (", shape.micro_batch,
                          ")"));
  }
}

Batch Loader::at(std::int64_t step, std::int64_t micro) const {
  FOVEA_ASSERT(step >= 0 && micro >= 0 && micro < micro_batches());
  Batch batch = empty_batch(shape_.micro_batch, source_);
  batch.index = micro;
  batch.first_sample = micro * shape_.micro_batch;
  Shuffle shuffle(source_.size(), seed_);
  Example example;
  for (std::int64_t row = 0; row < shape_.micro_batch; ++row) {
    const auto [i, epoch] = shuffle.at(step * shape_.global_batch + batch.first_sample + row);
    source_.get(i, epoch, example);
    put_row(batch, row, example);
  }
  return batch;
}

std::int64_t Loader::target_tokens(std::int64_t step) const {
  Shuffle shuffle(source_.size(), seed_);
  std::int64_t total = 0;
  for (std::int64_t sample = 0; sample < shape_.global_batch; ++sample) {
    const auto [i, epoch] = shuffle.at(step * shape_.global_batch + sample);
    total += source_.target_tokens(i, epoch);
  }
  return total;
}

EvalLoader::EvalLoader(const Source& source, std::int64_t micro_batch)
    : source_(source), micro_batch_(micro_batch) {
  if (micro_batch < 1) {
    throw ConfigError(cat("eval.micro_batch_size is ", micro_batch, ", but must be at least 1"));
  }
}

std::int64_t EvalLoader::batches() const {
  return (source_.size() + micro_batch_ - 1) / micro_batch_;
}

Batch EvalLoader::at(std::int64_t index) const {
  FOVEA_ASSERT(index >= 0 && index < batches());
  Batch batch = empty_batch(micro_batch_, source_);
  batch.index = index;
  batch.first_sample = index * micro_batch_;
  Example example;
  for (std::int64_t row = 0; row < std::min(micro_batch_, source_.size() - batch.first_sample);
       ++row) {
    source_.get(batch.first_sample + row, 0, example);
    put_row(batch, row, example);
  }
  return batch;
}

}  // namespace fovea::data
