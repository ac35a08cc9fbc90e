#pragma once
// Random directions of positive features.

#include <cstdint>
#include <string>
#include <vector>

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

}  // namespace fovea::attention
