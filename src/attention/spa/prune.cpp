#include "attention/spa/prune.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace fovea::attention::spa {

namespace {

// All indices, those of the largest score first, ties in their order.
std::vector<std::size_t> ranked(std::span<const double> score) {
  std::vector<std::size_t> order(score.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return score[a] > score[b]; });
  return order;
}

}  // namespace

Keep pruned(std::span<const double> score, std::int64_t cols, std::int64_t keep,
            std::int64_t min_per_row, std::span<const std::uint8_t> among) {
  const std::vector<std::size_t> order = ranked(score);
  const auto may_stay = [&](std::size_t i) { return among.empty() || among[i] != 0; };
  Keep out(score.size(), 0);
  std::vector<std::int64_t> of_row(score.size() / static_cast<std::size_t>(cols), 0);
  std::int64_t left = std::max(keep, min_per_row * static_cast<std::int64_t>(of_row.size()));
  for (const std::size_t i : order) {
    std::int64_t& in_row = of_row[i / static_cast<std::size_t>(cols)];
    if (in_row >= min_per_row || !may_stay(i)) continue;
    out[i] = 1;
    ++in_row;
    --left;
  }
  for (const std::size_t i : order) {
    if (left == 0) break;
    if (out[i] != 0 || !may_stay(i)) continue;
    out[i] = 1;
    --left;
  }
  return out;
}

Exchange exchanged(std::span<const double> weight, std::span<const double> appeal,
                   std::span<const std::uint8_t> active, double share) {
  const std::size_t size = weight.size();
  const auto count = static_cast<std::size_t>(
      std::count_if(active.begin(), active.end(), [](std::uint8_t on) { return on != 0; }));
  const auto moved = static_cast<std::size_t>(std::floor(share * static_cast<double>(count)));
  std::vector<double> smallness(size), wanted(size);
  for (std::size_t i = 0; i < size; ++i) {
    smallness[i] = -std::fabs(weight[i]);
    wanted[i] = std::isfinite(appeal[i]) ? std::fabs(appeal[i]) : 0;
  }
  Keep leaves(size, 0), comes(size, 0);
  std::size_t left = moved;
  for (const std::size_t i : ranked(smallness)) {
    if (left == 0) break;
    if (active[i] == 0) continue;
    leaves[i] = 1;
    --left;
  }
  left = moved;
  for (const std::size_t i : ranked(wanted)) {
    if (left == 0) break;
    if (active[i] != 0 && leaves[i] == 0) continue;
    comes[i] = 1;
    --left;
  }
  Exchange out;
  for (std::size_t i = 0; i < size; ++i) {
    if (leaves[i] == comes[i]) continue;
    (leaves[i] != 0 ? out.dropped : out.grown).push_back(i);
  }
  return out;
}

}  // namespace fovea::attention::spa
