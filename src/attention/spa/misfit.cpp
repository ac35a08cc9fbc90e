// Which sizes have a projection of a pattern.

#include "attention/spa/pattern.h"
#include "core/text.h"

namespace fovea::attention::spa {

namespace {

std::optional<Misfit> block(const PatternChoice& c) {
  if (c.in % c.b_r != 0)
    return Misfit{"b_r", cat("must divide the ", c.in, " features that are projected")};
  if (c.out % c.b_c != 0) return Misfit{"b_c", cat("must divide proj_dim ", c.out)};
  return std::nullopt;
}

std::optional<Misfit> banded(const PatternChoice& c) {
  const int features = c.half_band ? 2 * c.w + 1 : c.w;
  if (features > c.in)
    return Misfit{"w",
                  cat("must make bands of at most the ", c.in, " features that are projected")};
  const int stride = (c.in + c.out - 1) / c.out;
  if (features < stride)
    return Misfit{
        "w", cat("must make bands of at least ", stride, " features, or some are in no column (",
                 c.in, " features, proj_dim ", c.out, ")")};
  if (!c.clip) return std::nullopt;
  // Clipped bands may miss features at the end.
  const int before = c.half_band ? c.w : c.w / 2;
  const int last = static_cast<int>(static_cast<std::int64_t>(c.out - 1) * c.in / c.out) - before;
  if (last + features < c.in)
    return Misfit{"clip", "a clipped band leaves the last features in no column: use a larger w"};
  return std::nullopt;
}

std::optional<Misfit> hierarchical(const PatternChoice& c) {
  const int groups = 1 << c.levels;
  if (c.in % groups != 0)
    return Misfit{"levels",
                  cat("must cut the ", c.in, " projected features into ", groups, " equal groups")};
  for (int level = 1; level <= c.levels; ++level) {
    const int halvings = c.levels == 1 ? 0 : c.levels - (level < 2 ? 2 : level) + 1;
    const int columns = c.out >> halvings;
    if (columns << halvings != c.out || columns % (1 << level) != 0)
      return Misfit{"proj_dim", cat("hierarchical with ", c.levels, " levels needs a multiple of ",
                                    2 * groups)};
  }
  return std::nullopt;
}

std::optional<Misfit> conv(const PatternChoice& c) {
  if (4 * c.out >= c.in && 4 * c.out % c.in != 0)
    return Misfit{"proj_dim", cat("conv needs 4 proj_dim to be a multiple of the ", c.in,
                                  " projected features, or less")};
  const int filters = 4 * c.out >= c.in ? 4 * c.out / c.in : 1;
  if (filters * c.in % c.out != 0)
    return Misfit{"proj_dim", cat("conv needs it to divide ", filters * c.in)};
  const int step = filters * c.in / c.out;
  if (c.in % step != 0)
    return Misfit{"proj_dim", cat("conv moves by ", step, ", which must divide the ", c.in,
                                  " projected features")};
  if (c.w > c.in || c.w % step != 0)
    return Misfit{"w", cat("must be a multiple of ", step, " and at most ", c.in)};
  return std::nullopt;
}

}  // namespace

std::optional<Misfit> misfit_of(const PatternChoice& c) {
  switch (c.kind) {
    case PatternKind::block:
      return block(c);
    case PatternKind::banded:
      return banded(c);
    case PatternKind::hierarchical:
      return hierarchical(c);
    case PatternKind::conv:
      return conv(c);
    case PatternKind::identity:
      if (c.in != c.out)
        return Misfit{"proj_dim", cat("identity needs that of what is projected, ", c.in)};
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

}  // namespace fovea::attention::spa
