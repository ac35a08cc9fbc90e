#pragma once
// What the states of decoding share, whatever they remember: how long each sample is, and how
// samples change places.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "autograd/ctx.h"

namespace fovea::attention {

// Tokens that each sample has seen.
class SampleLengths {
 public:
  explicit SampleLengths(std::int64_t batch) : each_(static_cast<std::size_t>(batch), 0) {}

  const std::vector<std::int64_t>& each() const { return each_; }
  std::int64_t longest() const;  // 0 without samples
  // Throws ShapeError "decode: sample B has L tokens and gets N more, but HOLDS MOST" where
  // counts[b] more are more than `most`; `holds` as in "the cache holds".
  void require_room(std::span<const std::int64_t> counts, std::int64_t most,
                    std::string_view holds) const;
  void add(std::span<const std::int64_t> counts);
  // Sample i is what samples[i] was.
  void reorder(std::span<const std::int64_t> samples);

 private:
  std::vector<std::int64_t> each_;
};

// A copy of `from`, samples on its first axis, in which sample i is what samples[i] was; `tag` of
// its memory.
Tensor reordered(Ctx& ctx, const Tensor& from, std::span<const std::int64_t> samples,
                 const char* tag);

}  // namespace fovea::attention
