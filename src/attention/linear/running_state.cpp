#include "attention/linear/running_state.h"

#include <algorithm>
#include <limits>

#include "core/error.h"
#include "core/text.h"
#include "kernels/basic.h"

namespace fovea::attention {

RunningState::RunningState(Ctx& ctx, std::int64_t batch, std::int64_t states, std::int64_t features,
                           std::int64_t values, std::int64_t max_length)
    : lengths_(static_cast<std::size_t>(batch), 0), max_length_(max_length) {
  const DType acc = acc_of(ctx.compute());
  const auto filled = [&](Shape shape, double value) {
    Tensor out = Tensor::empty(shape, acc, ctx.device, "decode_state");
    FOVEA_ON(ctx.device, fill(ctx.stream.ref(), out.view(), value));
    return out;
  };
  sums_.sums = filled({batch, states, features, values + 1}, 0);
  sums_.top = filled({batch, states}, -std::numeric_limits<double>::infinity());
}

std::int64_t RunningState::length() const {
  return lengths_.empty() ? 0 : *std::max_element(lengths_.begin(), lengths_.end());
}

std::int64_t RunningState::bytes() const {
  const auto batch = static_cast<std::int64_t>(lengths_.size());
  return batch == 0 ? 0 : (sums_.sums.bytes() + sums_.top.bytes()) / batch;
}

void RunningState::reorder(Ctx& ctx, std::span<const std::int64_t> samples) {
  const auto gathered = [&](const Tensor& from) {
    Shape shape = from.shape();
    shape[0] = static_cast<std::int64_t>(samples.size());
    Tensor out = Tensor::empty(shape, from.dtype(), from.device(), "decode_state");
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const auto to = static_cast<std::int64_t>(i);
      FOVEA_ON(ctx.device, copy(ctx.stream.ref(), out.slice(0, to, to + 1).view(),
                                from.slice(0, samples[i], samples[i] + 1).view()));
    }
    return out;
  };
  sums_ = {gathered(sums_.sums), gathered(sums_.top)};
  std::vector<std::int64_t> lengths;
  for (const std::int64_t sample : samples)
    lengths.push_back(lengths_[static_cast<std::size_t>(sample)]);
  lengths_ = std::move(lengths);
}

void RunningState::grow(std::span<const std::int64_t> counts) {
  FOVEA_ASSERT(counts.size() == lengths_.size());
  for (std::size_t b = 0; b < counts.size(); ++b) {
    if (lengths_[b] + counts[b] > max_length_) {
      throw ShapeError(cat("decode: sample ", b, " has ", lengths_[b], " tokens and gets ",
                           counts[b], " more, but the most is ", max_length_));
    }
  }
  for (std::size_t b = 0; b < counts.size(); ++b)
    lengths_[b] += counts[b];
}

}  // namespace fovea::attention
