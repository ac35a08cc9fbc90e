#include "attention/spa/deck.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/error.h"

namespace fovea::attention::spa {

void Deck::shuffle() {
  const std::size_t kept = deck_.size();
  deck_.resize(kept + static_cast<std::size_t>(cards_));
  const auto fresh = deck_.begin() + static_cast<std::ptrdiff_t>(kept);
  std::iota(fresh, deck_.end(), 0);
  for (int i = cards_ - 1; i > 0; --i) {
    const auto j = stream_.below(drawn_++, static_cast<std::uint64_t>(i) + 1);
    std::swap(fresh[i], fresh[static_cast<std::ptrdiff_t>(j)]);
  }
}

std::vector<int> Deck::deal(int count) {
  FOVEA_ASSERT(count <= cards_);
  std::vector<int> hand;
  while (static_cast<int>(hand.size()) < count) {
    const auto next = std::find_if(deck_.begin(), deck_.end(), [&](int card) {
      return std::find(hand.begin(), hand.end(), card) == hand.end();
    });
    if (next == deck_.end()) {
      shuffle();
      continue;
    }
    hand.push_back(*next);
    deck_.erase(next);
  }
  return hand;
}

}  // namespace fovea::attention::spa
