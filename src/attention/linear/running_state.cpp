#include "attention/linear/running_state.h"

#include <limits>

#include "core/error.h"
#include "kernels/basic.h"

namespace fovea::attention {

RunningState::RunningState(Ctx& ctx, std::int64_t batch, std::int64_t states, std::int64_t features,
                           std::int64_t values, std::int64_t max_length)
    : lengths_(batch), max_length_(max_length) {
  const DType acc = acc_of(ctx.compute());
  const auto filled = [&](Shape shape, double value) {
    Tensor out = Tensor::empty(shape, acc, ctx.device, "decode_state");
    FOVEA_ON(ctx.device, fill(ctx.stream.ref(), out.view(), value));
    return out;
  };
  sums_.sums = filled({batch, states, features, values + 1}, 0);
  sums_.top = filled({batch, states}, -std::numeric_limits<double>::infinity());
}

std::int64_t RunningState::bytes() const {
  const auto batch = static_cast<std::int64_t>(lengths().size());
  return batch == 0 ? 0 : (sums_.sums.bytes() + sums_.top.bytes()) / batch;
}

void RunningState::reorder(Ctx& ctx, std::span<const std::int64_t> samples) {
  sums_ = {reordered(ctx, sums_.sums, samples, "decode_state"),
           reordered(ctx, sums_.top, samples, "decode_state")};
  lengths_.reorder(samples);
}

void RunningState::grow(std::span<const std::int64_t> counts) {
  FOVEA_ASSERT(counts.size() == lengths().size());
  lengths_.require_room(counts, max_length_, "the most is");
  lengths_.add(counts);
}

}  // namespace fovea::attention
