#include "attention/past_samples.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "kernels/basic.h"

namespace fovea::attention {

std::int64_t SampleLengths::longest() const {
  return each_.empty() ? 0 : *std::max_element(each_.begin(), each_.end());
}

void SampleLengths::require_room(std::span<const std::int64_t> counts, std::int64_t most,
                                 std::string_view holds) const {
  for (std::size_t b = 0; b < each_.size(); ++b) {
    if (each_[b] + counts[b] > most) {
      throw ShapeError(cat("decode: sample ", b, " has ", each_[b], " tokens and gets ", counts[b],
                           " more, but ", holds, " ", most));
    }
  }
}

void SampleLengths::add(std::span<const std::int64_t> counts) {
  for (std::size_t b = 0; b < each_.size(); ++b)
    each_[b] += counts[b];
}

void SampleLengths::reorder(std::span<const std::int64_t> samples) {
  std::vector<std::int64_t> turned;
  for (const std::int64_t sample : samples)
    turned.push_back(each_[static_cast<std::size_t>(sample)]);
  each_ = std::move(turned);
}

Tensor reordered(Ctx& ctx, const Tensor& from, std::span<const std::int64_t> samples,
                 const char* tag) {
  Shape shape = from.shape();
  shape[0] = static_cast<std::int64_t>(samples.size());
  Tensor out = Tensor::empty(shape, from.dtype(), from.device(), tag);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const auto to = static_cast<std::int64_t>(i);
    FOVEA_ON(ctx.device, copy(ctx.stream.ref(), out.slice(0, to, to + 1).view(),
                              from.slice(0, samples[i], samples[i] + 1).view()));
  }
  return out;
}

}  // namespace fovea::attention
