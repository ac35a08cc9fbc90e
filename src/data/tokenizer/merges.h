#pragma once
// Which neighbouring tokens become one, and the merging of a sequence by it.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace fovea::data {

class Merges {
 public:
  static constexpr std::uint32_t kNoRank = 0xFFFFFFFF;
  struct Merge {
    std::uint32_t rank = kNoRank;  // lower is done first
    std::int32_t result = -1;
  };

  // False, and nothing is changed, if the pair has a merge already. rank < kNoRank.
  bool add(std::int32_t left, std::int32_t right, Merge merge);
  // The pair's merge; its rank is kNoRank if it has none.
  Merge find(std::int32_t left, std::int32_t right) const;

  // While a neighbouring pair has a merge, does the one of lowest rank, the leftmost of equals.
  // Overwrites `ids` and returns how many are left. n ids cost O(n log n): a run of a million equal
  // letters is no trap.
  // Where every merge makes a token of its own (GPT-2's do), a new pair always ranks behind the
  // merge that made it, so this is the same as merging all pairs of a rank before looking on.
  std::size_t apply(std::span<std::int32_t> ids) const;

 private:
  struct Slot {
    std::uint64_t pair = kEmpty;
    Merge merge;
  };
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};
  std::size_t slot_of(std::uint64_t pair) const;
  std::size_t apply_short(std::span<std::int32_t> ids) const;
  std::size_t apply_long(std::span<std::int32_t> ids) const;

  std::vector<Slot> slots_ = std::vector<Slot>(64);  // a power of two, at most half full
  std::size_t size_ = 0;
};

}  // namespace fovea::data
