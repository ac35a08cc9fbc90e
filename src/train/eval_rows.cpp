#include "train/eval_rows.h"

#include <numeric>

namespace fovea::train {

namespace {

constexpr std::int64_t kProductRows = 128, kMostGroupRows = 8192;

}  // namespace

std::int64_t eval_group(std::int64_t length) {
  const std::int64_t windows = kProductRows / std::gcd(length, kProductRows);
  return windows * length <= kMostGroupRows ? windows : 1;
}

std::int64_t eval_rows(std::int64_t asked, std::int64_t length) {
  const std::int64_t group = eval_group(length);
  if (group * length % kProductRows != 0) return 1;
  return (asked + group - 1) / group * group;
}

}  // namespace fovea::train
