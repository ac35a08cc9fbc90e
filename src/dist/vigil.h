#pragma once
// Who of the ranks is lost: it is silent, or stands still while others wait. Knows nothing of the
// network; time comes from the caller.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dist/session.h"
#include "dist/wire.h"

namespace fovea::dist {

// Where a rank says it stands.
struct Place {
  std::string phase = "starting";
  std::int64_t step = 0, collectives = 0;
  bool waiting = false;  // for others: its own standing still means nothing

  bool operator==(const Place&) const = default;
};
std::string text_of(const Place& place);  // "in phase 'update', step 3, collective 45"
void write(Body& body, const Place& place);
Place read_place(BodyReader& body);
// Least time between two words of a rank that moves on: a thousand words a second, of all ranks
// together, are a load that nobody feels.
std::chrono::milliseconds pace_of_words(int ranks);

class Vigil {
 public:
  using Clock = std::chrono::steady_clock;

  // All of them are heard of, and move, at `now`.
  Vigil(std::vector<Peer> peers, std::chrono::milliseconds lost_after, Clock::time_point now);

  const Peer& peer(int rank) const { return at(rank).peer; }
  const Place& place(int rank) const { return at(rank).place; }

  void hear(int rank, Clock::time_point now) { at(rank).heard = now; }
  // busy: of one core, what the rank's thread used since its last word.
  void note(int rank, const Place& place, double busy, Clock::time_point now);
  // Nothing more is expected of it.
  void dismiss(int rank) { at(rank).dismissed = true; }

  struct Finding {
    int rank = -1;  // -1: all of them
    std::string message;
  };
  // To be called often. Long gaps between calls are the caller's own (a process or a machine that
  // was suspended): everybody's time begins anew.
  std::optional<Finding> look(Clock::time_point now);

  // "rank 2 (host gpu07, pid 4711) died in phase 'update', step 120, collective 3401"
  std::string died(int rank) const;

 private:
  struct Rank {
    Peer peer;
    Place place;
    Clock::time_point heard, moved, worked;
    bool dismissed = false;
  };
  Rank& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  const Rank& at(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }
  std::optional<Finding> silent(Clock::time_point now) const;
  std::optional<Finding> standing(Clock::time_point now) const;
  std::optional<Finding> all_waiting(Clock::time_point now) const;
  bool stands_still(const Rank& rank, Clock::time_point now) const;

  std::chrono::milliseconds lost_after_;
  std::vector<Rank> ranks_;
  Clock::time_point looked_;
};

}  // namespace fovea::dist
