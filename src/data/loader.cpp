#include "data/loader.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "core/error.h"
#include "core/random.h"
#include "core/text.h"

namespace fovea::data {

namespace {

Tensor filled(std::int64_t rows, std::int64_t columns, std::int32_t value) {
  Tensor out = Tensor::empty({rows, columns}, DType::i32, kCpu, "batch");
  std::fill_n(out.data<std::int32_t>(), out.numel(), value);
  return out;
}

Batch empty_batch(std::int64_t rows, const Source& source) {
  const std::int64_t length = source.seq_len();
  Batch batch;
  batch.classes = source.classes();
  batch.tokens = filled(rows, length, 0);
  batch.targets = filled(rows, batch.classes > 0 ? 1 : length, kIgnored);
  if (source.is_padded()) {
    batch.key_valid = Tensor::empty({rows, length}, DType::u8, kCpu, "batch");
    std::fill_n(batch.key_valid.data<std::uint8_t>(), rows * length, std::uint8_t{0});
  }
  if (source.has_segments()) {
    batch.segments = filled(rows, length, 0);
    batch.positions = filled(rows, length, 0);
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

void put_group(Batch& batch, std::int64_t row, const std::string& group) {
  if (group.empty()) return;
  batch.groups.resize(static_cast<std::size_t>(batch.tokens.size(0)));
  batch.groups[static_cast<std::size_t>(row)] = group;
}

void put_row(Batch& batch, std::int64_t row, const Example& example) {
  const std::int64_t length = batch.tokens.size(1);
  const std::size_t targets = batch.classes > 0 ? 1 : example.tokens.size();
  FOVEA_ASSERT(example.targets.size() == targets &&
               static_cast<std::int64_t>(example.tokens.size()) <= length);
  std::copy(example.tokens.begin(), example.tokens.end(),
            batch.tokens.data<std::int32_t>() + row * length);
  std::copy(example.targets.begin(), example.targets.end(),
            batch.targets.data<std::int32_t>() + row * batch.targets.size(1));
  if (batch.key_valid.defined()) {
    std::fill_n(batch.key_valid.data<std::uint8_t>() + row * length, example.tokens.size(),
                std::uint8_t{1});
  }
  batch.target_tokens += static_cast<std::int64_t>(example.targets.size()) -
                         std::count(example.targets.begin(), example.targets.end(), kIgnored);
  if (batch.segments.defined()) put_segments(batch, row, example);
  put_group(batch, row, example.group);
}

std::int64_t batches_of(const EvalLoader::Part& part) {
  return (part.source->size() + part.rows - 1) / part.rows;
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

EvalLoader::EvalLoader(const Source& source, std::int64_t rows)
    : EvalLoader(std::vector<Part>{{&source, rows}}) {}

EvalLoader::EvalLoader(std::vector<Part> parts) : parts_(std::move(parts)) {
  for (const Part& part : parts_) {
    if (part.rows < 1) {
      throw ConfigError(cat("eval.micro_batch_size is ", part.rows, ", but must be at least 1"));
    }
  }
}

std::int64_t EvalLoader::examples() const {
  std::int64_t count = 0;
  for (const Part& part : parts_)
    count += part.source->size();
  return count;
}

std::int64_t EvalLoader::batches() const {
  std::int64_t count = 0;
  for (const Part& part : parts_)
    count += batches_of(part);
  return count;
}

std::int64_t EvalLoader::examples_in(std::int64_t batches) const {
  std::int64_t count = 0;
  for (const Part& part : parts_) {
    const std::int64_t own = std::min(batches, batches_of(part));
    count += std::min(own * part.rows, part.source->size());
    batches -= own;
  }
  return count;
}

Batch EvalLoader::at(std::int64_t index) const {
  FOVEA_ASSERT(index >= 0);
  std::int64_t in_part = index, before = 0;  // examples of the parts before
  for (const Part& part : parts_) {
    if (in_part >= batches_of(part)) {
      in_part -= batches_of(part);
      before += part.source->size();
      continue;
    }
    Batch batch = empty_batch(part.rows, *part.source);
    const std::int64_t first = in_part * part.rows;
    batch.index = index;
    batch.first_sample = before + first;
    Example example;
    for (std::int64_t row = 0; row < std::min(part.rows, part.source->size() - first); ++row) {
      part.source->get(first + row, 0, example);
      put_row(batch, row, example);
    }
    return batch;
  }
  FOVEA_ASSERT(index < batches());
  return {};
}

}  // namespace fovea::data
