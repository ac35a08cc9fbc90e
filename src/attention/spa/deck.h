#pragma once
// Cards dealt so that every one comes up equally often.

#include <cstdint>
#include <string>
#include <vector>

#include "core/random.h"

namespace fovea::attention::spa {

// Columns come from a shuffled deck that is shuffled anew when it is used up: how often two columns
// were dealt differs by at most one. A card that would repeat a column of the same hand stays in
// the deck for a later one. Source: spa.md 1.5.
class Deck {
 public:
  Deck(int cards, std::uint64_t seed, const std::string& name)
      : cards_(cards), stream_(seed, name) {}
  // `count` different cards, in the order dealt; count <= cards.
  std::vector<int> deal(int count);

 private:
  void shuffle();

  int cards_;
  NamedStream stream_;
  std::uint64_t drawn_ = 0;  // numbers of the stream used so far
  std::vector<int> deck_;
};

}  // namespace fovea::attention::spa
