#pragma once
// Algorithm 2: which entries of S stay, and which come back. Plain functions of numbers on the
// host, so that every rank decides alike. Source: spa.md 1.6.

#include <cstdint>
#include <span>
#include <vector>

namespace fovea::attention::spa {

using Keep = std::vector<std::uint8_t>;  // 1 = active

// The `keep` entries with the largest scores, ties to the lower index; each row of `cols` keeps its
// best min_per_row whatever their rank, and should that be more than `keep`. `among`: empty, or the
// only entries that may stay, which may be fewer than `keep`.
Keep pruned(std::span<const double> score, std::int64_t cols, std::int64_t keep,
            std::int64_t min_per_row, std::span<const std::uint8_t> among);

// Entries that leave and that come back, ascending; no entry is in both.
struct Exchange {
  std::vector<std::size_t> dropped, grown;
};
// Drops the floor(share * active) active entries of the smallest |weight| and activates as many
// inactive ones of the largest `appeal`; one that is dropped and chosen again stays as it is. Ties
// to the lower index; an appeal that is not finite counts as 0.
Exchange exchanged(std::span<const double> weight, std::span<const double> appeal,
                   std::span<const std::uint8_t> active, double share);

}  // namespace fovea::attention::spa
