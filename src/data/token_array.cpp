#include "data/token_array.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace fovea::data {

MemoryTokens::MemoryTokens(std::int64_t vocab) : width_(vocab <= 256 ? 1 : token_bytes(vocab)) {}

std::int64_t MemoryTokens::size() const {
  return static_cast<std::int64_t>(one_.size() + two_.size() + four_.size());
}

void MemoryTokens::read(std::int64_t begin, std::int64_t count, std::int32_t* to) const {
  FOVEA_ASSERT(begin >= 0 && count >= 0 && count <= size() - begin);
  const auto copy = [&](const auto& from) {
    std::transform(from.begin() + begin, from.begin() + begin + count, to,
                   [](auto id) { return static_cast<std::int32_t>(id); });
  };
  if (width_ == 1) copy(one_);
  if (width_ == 2) copy(two_);
  if (width_ == 4) copy(four_);
}

void MemoryTokens::tokens(std::span<const std::int32_t> ids) {
  const auto append = [&]<class T>(std::vector<T>& to) {
    for (const std::int32_t id : ids)
      to.push_back(static_cast<T>(id));
  };
  if (width_ == 1) append(one_);
  if (width_ == 2) append(two_);
  if (width_ == 4) append(four_);
}

void MemoryTokens::end_document() {
  offsets_.push_back(static_cast<std::uint64_t>(size()));
}

JoinedTokens::JoinedTokens(std::vector<Part> parts) : parts_(std::move(parts)) {
  bool known = !parts_.empty();
  std::int64_t total = 0;
  for (const Part& part : parts_) {
    FOVEA_ASSERT(part.begin >= 0 && part.begin <= part.end && part.end <= part.tokens->size());
    known = known && part.begin == 0 && part.end == part.tokens->size() &&
            !part.tokens->offsets().empty();
    total += part.end - part.begin;
    ends_.push_back(total);
  }
  if (!known) return;
  offsets_.push_back(0);
  for (const Part& part : parts_) {
    const std::uint64_t base = offsets_.back();
    for (const std::uint64_t offset : part.tokens->offsets().subspan(1))
      offsets_.push_back(base + offset);
  }
}

void JoinedTokens::read(std::int64_t begin, std::int64_t count, std::int32_t* to) const {
  FOVEA_ASSERT(begin >= 0 && count >= 0 && count <= size() - begin);
  auto i =
      static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), begin) - ends_.begin());
  for (; count > 0; ++i) {
    const Part& part = parts_[i];
    const std::int64_t at = part.end - (ends_[i] - begin);
    const std::int64_t here = std::min(count, part.end - at);
    part.tokens->read(at, here, to);
    begin += here;
    count -= here;
    to += here;
  }
}

}  // namespace fovea::data
