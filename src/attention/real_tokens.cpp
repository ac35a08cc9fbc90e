#include "attention/real_tokens.h"

#include <algorithm>

#include "core/error.h"
#include "core/text.h"

namespace fovea::attention {

std::vector<std::int64_t> real_tokens(const Ctx& ctx, const Tensor& key_valid, std::int64_t batch,
                                      std::int64_t tokens) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(batch), tokens);
  if (!key_valid.defined() || ctx.device.is_meta()) return counts;
  const std::vector<double> valid = key_valid.to(kCpu, ctx.stream).values();
  for (std::size_t b = 0; b < counts.size(); ++b) {
    const auto row = valid.begin() + static_cast<std::ptrdiff_t>(b) * tokens;
    const auto end = std::find(row, row + tokens, 0.0);
    if (std::find_if(end, row + tokens, [](double v) { return v != 0; }) != row + tokens) {
      throw ShapeError(cat("decode: sample ", b, " has a real token behind a padded one"));
    }
    counts[b] = end - row;
  }
  return counts;
}

}  // namespace fovea::attention
