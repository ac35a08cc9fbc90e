#pragma once
// Random directions of positive features.

#include <cstdint>
#include <string>
#include <vector>

#include "autograd/ctx.h"

namespace fovea::attention {

enum class DirectionScale {
  chi,       // the length of an independent Gaussian vector
  constant,  // sqrt(width)
};

// `count` directions of `width` numbers, row-major: orthogonal inside every block of `width`, or
// independent Gaussian vectors. A pure function of (seed, name) and the arguments.
// Source: baselines.md 10.2.
std::vector<double> random_directions(std::int64_t count, std::int64_t width, bool orthogonal,
                                      DirectionScale scale, std::uint64_t seed,
                                      const std::string& name);

// Fills w, f32 [R,D], or [G,R,D] each matrix by itself, from streams of `name`; nothing on meta.
void draw_directions(Ctx& ctx, const Tensor& w, bool orthogonal, DirectionScale scale,
                     const std::string& name);

}  // namespace fovea::attention
