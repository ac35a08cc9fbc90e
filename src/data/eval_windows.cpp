#include "data/eval_windows.h"

#include <algorithm>

#include "core/error.h"
#include "core/text.h"

namespace fovea::data {

EvalWindows::EvalWindows(const std::vector<std::int64_t>& lengths, EvalCut cut) : cut_(cut) {
  if (cut.context < 1 || cut.stride < 1 || cut.stride > cut.context) {
    throw ConfigError(cat("eval.stride is ", cut.stride, ", but must be in [1, ", cut.context,
                          "] (eval.context)"));
  }
  std::int64_t windows = 0;
  for (const std::int64_t length : lengths) {
    const std::int64_t lost = cut.prefix || length == 0 ? 0 : 1, pairs = length - lost;
    if (pairs > 0)
      windows += 1 + (std::max(pairs, cut.context) - cut.context + cut.stride - 1) / cut.stride;
    pairs_.push_back(pairs);
    ends_.push_back(windows);
    targets_ += pairs;
    unscored_ += lost;
  }
}

EvalWindows::Window EvalWindows::at(std::int64_t window) const {
  FOVEA_ASSERT(window >= 0 && window < size());
  const auto stream = std::upper_bound(ends_.begin(), ends_.end(), window) - ends_.begin();
  const std::int64_t before = stream == 0 ? 0 : ends_[static_cast<std::size_t>(stream - 1)];
  Window out;
  out.stream = stream;
  out.first = (window - before) * cut_.stride;
  out.inputs = std::min(cut_.context, pairs_[static_cast<std::size_t>(stream)] - out.first);
  out.skipped = window == before ? 0 : cut_.context - cut_.stride;
  return out;
}

}  // namespace fovea::data
