#include "data/tokenizer/merges.h"

#include <algorithm>
#include <array>
#include <queue>
#include <tuple>

namespace fovea::data {

namespace {

// Up to here a scan for the minimum is faster than a heap; nearly every piece of real text is
// shorter.
constexpr std::size_t kShort = 64;

std::uint64_t pair_of(std::int32_t left, std::int32_t right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

}  // namespace

std::size_t Merges::slot_of(std::uint64_t pair) const {
  const std::size_t mask = slots_.size() - 1;
  // Fibonacci hashing; the upper bits of the product depend on all bits of the pair.
  auto at = static_cast<std::size_t>((pair ^ pair >> 29) * 0x9e3779b97f4a7c15ull >> 32) & mask;
  while (slots_[at].pair != pair && slots_[at].pair != kEmpty)
    at = (at + 1) & mask;
  return at;
}

bool Merges::add(std::int32_t left, std::int32_t right, Merge merge) {
  if ((size_ + 1) * 2 > slots_.size()) {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& slot : old)
      if (slot.pair != kEmpty) slots_[slot_of(slot.pair)] = slot;
  }
  const std::uint64_t pair = pair_of(left, right);
  Slot& slot = slots_[slot_of(pair)];
  if (slot.pair == pair) return false;
  slot = {pair, merge};
  ++size_;
  return true;
}

Merges::Merge Merges::find(std::int32_t left, std::int32_t right) const {
  return slots_[slot_of(pair_of(left, right))].merge;
}

std::size_t Merges::apply(std::span<std::int32_t> ids) const {
  if (ids.size() < 2) return ids.size();
  return ids.size() <= kShort ? apply_short(ids) : apply_long(ids);
}

std::size_t Merges::apply_short(std::span<std::int32_t> ids) const {
  std::array<std::uint32_t, kShort> ranks;  // of the pair (i, i + 1)
  std::array<std::int32_t, kShort> results;
  const auto look_up = [&](std::size_t i) {
    const Merge merge = find(ids[i], ids[i + 1]);
    ranks[i] = merge.rank;
    results[i] = merge.result;
  };
  std::size_t count = ids.size();
  for (std::size_t i = 0; i + 1 < count; ++i)
    look_up(i);
  while (count > 1) {
    const auto best = std::min_element(ranks.begin(), ranks.begin() + count - 1);
    if (*best == kNoRank) break;
    const auto at = static_cast<std::size_t>(best - ranks.begin());
    ids[at] = results[at];
    --count;
    for (std::size_t i = at + 1; i < count; ++i)
      ids[i] = ids[i + 1];
    for (std::size_t i = at + 1; i + 1 < count; ++i) {
      ranks[i] = ranks[i + 1];
      results[i] = results[i + 1];
    }
    if (at > 0) look_up(at - 1);
    if (at + 1 < count) look_up(at);
  }
  return count;
}

std::size_t Merges::apply_long(std::span<std::int32_t> ids) const {
  struct Node {
    std::size_t before, next;  // `next` is ids.size() at the end
    Merge merge;               // with `next`
  };
  using Entry = std::pair<std::uint32_t, std::size_t>;  // rank, position
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
  std::vector<Node> nodes(ids.size());
  const std::size_t end = ids.size();
  const auto look_up = [&](std::size_t i) {
    const std::size_t next = nodes[i].next;
    nodes[i].merge = next == end ? Merge{} : find(ids[i], ids[next]);
    if (nodes[i].merge.rank != kNoRank) queue.emplace(nodes[i].merge.rank, i);
  };
  for (std::size_t i = 0; i < end; ++i)
    nodes[i] = {i - 1, i + 1, {}};  // the first one's `before` is never followed
  for (std::size_t i = 0; i < end; ++i)
    look_up(i);
  while (!queue.empty()) {
    const auto [rank, at] = queue.top();
    queue.pop();
    // An entry is out of date when its pair has changed since; a node that is gone has no rank.
    if (nodes[at].merge.rank != rank) continue;
    const std::size_t gone = nodes[at].next;
    ids[at] = nodes[at].merge.result;
    nodes[gone].merge = {};
    nodes[at].next = nodes[gone].next;
    if (nodes[at].next != end) nodes[nodes[at].next].before = at;
    look_up(at);
    if (at > 0) look_up(nodes[at].before);
  }
  std::size_t count = 0;
  for (std::size_t i = 0; i != end; i = nodes[i].next)
    ids[count++] = ids[i];
  return count;
}

}  // namespace fovea::data
