#include "data/tokenizer/merges.h"

#include <vector>

#include <doctest/doctest.h>

#include "core/random.h"

using namespace fovea;
using namespace fovea::data;

namespace {

using Ids = std::vector<std::int32_t>;

Ids merged(const Merges& merges, Ids ids) {
  ids.resize(merges.apply(ids));
  return ids;
}

// What the header says, as plainly as can be.
Ids merged_plainly(const Merges& merges, Ids ids) {
  while (true) {
    Merges::Merge best;
    std::size_t at = 0;
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
      const Merges::Merge merge = merges.find(ids[i], ids[i + 1]);
      if (merge.rank < best.rank) {
        best = merge;
        at = i;
      }
    }
    if (best.rank == Merges::kNoRank) return ids;
    ids[at] = best.result;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

}  // namespace

TEST_CASE("the lowest rank is merged first, the leftmost of equals") {
  Merges merges;
  merges.add(0, 1, {5, 10});
  merges.add(1, 2, {3, 11});
  merges.add(0, 0, {4, 12});
  CHECK(merged(merges, {0, 1, 2}) == Ids{0, 11});
  CHECK(merged(merges, {0, 1, 0}) == Ids{10, 0});
  CHECK(merged(merges, {0, 0, 0}) == Ids{12, 0});
  CHECK(merged(merges, {0, 0, 1, 2}) == Ids{12, 11});
  CHECK(merged(merges, {}) == Ids{});
  CHECK(merged(merges, {2}) == Ids{2});
}

TEST_CASE("a pair has one merge: the first") {
  Merges merges;
  CHECK(merges.add(1, 2, {7, 3}));
  CHECK_FALSE(merges.add(1, 2, {6, 4}));
  CHECK(merges.find(1, 2).rank == 7);
  CHECK(merges.find(1, 2).result == 3);
  CHECK(merges.find(2, 1).rank == Merges::kNoRank);
}

TEST_CASE("short and long sequences merge as the plain rule says") {
  const NamedStream stream(5, "merges");
  std::uint64_t draw = 0;
  for (int round = 0; round < 200; ++round) {
    Merges merges;
    std::int32_t next = 3;
    for (std::uint32_t rank = 0; rank < 40; ++rank) {
      const auto left =
          static_cast<std::int32_t>(stream.below(draw++, static_cast<std::uint64_t>(next)));
      const auto right =
          static_cast<std::int32_t>(stream.below(draw++, static_cast<std::uint64_t>(next)));
      if (merges.add(left, right, {rank / 2, next})) ++next;  // ranks may be equal
    }
    for (const std::size_t length : {2u, 5u, 30u, 64u, 65u, 300u}) {
      Ids ids(length);
      for (std::int32_t& id : ids)
        id = static_cast<std::int32_t>(stream.below(draw++, 3));
      REQUIRE(merged(merges, ids) == merged_plainly(merges, ids));
    }
  }
}
