#include "attention/alibi.h"

#include <bit>
#include <cmath>

namespace fovea::attention {

std::vector<double> alibi_slopes(int heads) {
  const int power = static_cast<int>(std::bit_floor(static_cast<unsigned>(heads)));
  std::vector<double> slopes;
  slopes.reserve(static_cast<std::size_t>(heads));
  for (int h = 0; h < power; ++h)
    slopes.push_back(std::exp2(-8.0 * (h + 1) / power));
  for (int h = 0; static_cast<int>(slopes.size()) < heads; h += 2) {
    slopes.push_back(std::exp2(-8.0 * (h + 1) / (2 * power)));
  }
  return slopes;
}

}  // namespace fovea::attention
