#include "dist/halving.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "core/error.h"
#include "kernels/basic.h"

namespace fovea::dist {

namespace {

// One halving: both ranks of a pair hold `kept` and `given` together; each completes one of them.
struct Level {
  int peer = 0;
  Shard kept, given;
};

std::vector<Level> levels_of(std::int64_t elements, std::int64_t unit, int rank, int size) {
  FOVEA_ASSERT(std::has_single_bit(static_cast<unsigned>(size)) && unit >= 1);
  std::vector<Level> out;
  Shard whole{0, elements};
  for (int distance = 1; distance < size; distance *= 2) {
    const std::int64_t units = (whole.size() + unit - 1) / unit;
    const std::int64_t middle = std::min(whole.begin + (units + 1) / 2 * unit, whole.end);
    const Shard lower{whole.begin, middle}, upper{middle, whole.end};
    const bool is_lower = (rank & distance) == 0;
    out.push_back({rank ^ distance, is_lower ? lower : upper, is_lower ? upper : lower});
    whole = out.back().kept;
  }
  return out;
}

Tensor part(const Tensor& values, const Shard& shard) {
  return values.slice(0, shard.begin, shard.end);
}

// Which of the two is added to which does not show: a + b is b + a to the bit.
void add(const Tensor& to, const Tensor& from, Stream& stream) {
  FOVEA_ON(to.device(), accumulate(stream.ref(), to.view(), from.view()));
}

void check(const Tensor& values, const Tensor& scratch, std::int64_t needed) {
  FOVEA_ASSERT(values.rank() == 1 && values.is_contiguous());
  FOVEA_ASSERT(values.dtype() == acc_of(values.dtype()));
  FOVEA_ASSERT(scratch.dtype() == values.dtype() && scratch.numel() >= needed);
}

}  // namespace

Shard shard_of(std::int64_t elements, std::int64_t unit, int rank, int size) {
  return size == 1 ? Shard{0, elements} : levels_of(elements, unit, rank, size).back().kept;
}

void tree_all_reduce(Communicator& ranks, const Tensor& values, const Tensor& scratch,
                     Stream& stream) {
  const std::int64_t elements = values.numel();
  if (ranks.size() == 1 || elements == 0) return;
  if (elements >= kWholeExchange) {
    tree_reduce_scatter(ranks, values, 1, scratch, stream);
    tree_all_gather(ranks, values, 1, stream);
    return;
  }
  // Where latency counts, half as many exchanges: all ranks of a node compute all of its sum.
  FOVEA_ASSERT(std::has_single_bit(static_cast<unsigned>(ranks.size())));
  check(values, scratch, elements);
  const Tensor received = part(scratch, {0, elements});
  for (int distance = 1; distance < ranks.size(); distance *= 2) {
    ranks.exchange(values.view(), received.view(), ranks.rank() ^ distance, stream);
    add(values, received, stream);
  }
}

void tree_reduce_scatter(Communicator& ranks, const Tensor& values, std::int64_t unit,
                         const Tensor& scratch, Stream& stream) {
  const std::vector<Level> levels = levels_of(values.numel(), unit, ranks.rank(), ranks.size());
  if (levels.empty()) return;
  check(values, scratch, 1);
  for (const Level& level : levels) {
    // In pieces of the scratch's size, as many as the larger side has: the peer counts the same.
    const std::int64_t most = std::max(level.kept.size(), level.given.size());
    for (std::int64_t from = 0; from < most; from += scratch.numel()) {
      const auto piece = [&](const Shard& shard) {
        return Shard{shard.begin + std::min(from, shard.size()),
                     shard.begin + std::min(from + scratch.numel(), shard.size())};
      };
      const Shard kept = piece(level.kept);
      const Tensor received = part(scratch, {0, kept.size()});
      ranks.exchange(part(values, piece(level.given)).view(), received.view(), level.peer, stream);
      if (kept.size() > 0) add(part(values, kept), received, stream);
    }
  }
}

void tree_all_gather(Communicator& ranks, const Tensor& values, std::int64_t unit, Stream& stream) {
  FOVEA_ASSERT(values.rank() == 1 && values.is_contiguous());
  const std::vector<Level> levels = levels_of(values.numel(), unit, ranks.rank(), ranks.size());
  for (std::size_t i = levels.size(); i-- > 0;) {
    ranks.exchange(part(values, levels[i].kept).view(), part(values, levels[i].given).view(),
                   levels[i].peer, stream);
  }
}

}  // namespace fovea::dist
