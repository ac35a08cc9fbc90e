#pragma once
// ALiBi's slopes.

#include <vector>

namespace fovea::attention {

// slope_h = 2^(-8 (h+1) / H) for H a power of two; otherwise the slopes of the largest power of two
// P <= H, then every second one of 2P until H are there. Source: Press et al. 2022;
// baselines.md 18.4.
std::vector<double> alibi_slopes(int heads);

}  // namespace fovea::attention
