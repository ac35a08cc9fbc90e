#include "dist/vigil.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "core/text.h"

namespace fovea::dist {

namespace {

// A rank that computes is not hung, however long it takes; unless it goes round in circles.
constexpr double kBusy = 0.1;
// So many times lost_after: for a rank that computes; for one whose disk or network may be slow;
// and for all ranks in one operation, which moves more bytes than one thinks, or waits for nobody.
constexpr int kComputing = 30, kFiles = 30, kTogether = 10;
constexpr std::size_t kMostPlaces = 8;  // in a message

// Phases without a limit on computing, and with time for files.
bool is_patient(std::string_view phase) {
  return phase == "starting" || phase == "checkpoint";
}

std::string seconds(Vigil::Clock::duration d) {
  return cat(std::chrono::duration_cast<std::chrono::seconds>(d).count(), " s");
}

}  // namespace

std::string text_of(const Place& place) {
  return cat("in phase '", place.phase, "', step ", place.step, ", collective ", place.collectives);
}

void write(Body& body, const Place& place) {
  body.add(std::string_view(place.phase))
      .add(static_cast<std::uint64_t>(place.step))
      .add(static_cast<std::uint64_t>(place.collectives))
      .add(std::uint64_t{place.waiting});
}

Place read_place(BodyReader& body) {
  Place out;
  out.phase = body.text();
  out.step = static_cast<std::int64_t>(body.number());
  out.collectives = static_cast<std::int64_t>(body.number());
  out.waiting = body.number() != 0;
  return out;
}

std::chrono::milliseconds pace_of_words(int ranks) {
  return std::chrono::milliseconds(std::clamp(ranks, 10, 1000));
}

Vigil::Vigil(std::vector<Peer> peers, std::chrono::milliseconds lost_after, Clock::time_point now)
    : lost_after_(lost_after), looked_(now) {
  for (Peer& peer : peers)
    ranks_.push_back({std::move(peer), {}, now, now, now, false});
}

void Vigil::note(int rank, const Place& place, double busy, Clock::time_point now) {
  Rank& r = at(rank);
  r.heard = now;
  if (place != r.place) r.moved = now;
  if (place != r.place || (busy > kBusy && !place.waiting)) r.worked = now;
  r.place = place;
}

std::optional<Vigil::Finding> Vigil::look(Clock::time_point now) {
  if (now - std::exchange(looked_, now) > lost_after_ / 2) {
    for (Rank& r : ranks_)
      r.heard = r.moved = r.worked = now;
    return std::nullopt;
  }
  if (auto found = silent(now)) return found;
  if (auto found = standing(now)) return found;
  return all_waiting(now);
}

std::string Vigil::died(int rank) const {
  return cat(name_of(peer(rank)), " died ", text_of(place(rank)));
}

std::optional<Vigil::Finding> Vigil::silent(Clock::time_point now) const {
  for (const Rank& r : ranks_) {
    if (r.dismissed || now - r.heard <= lost_after_) continue;
    return Finding{r.peer.rank, cat(name_of(r.peer), " hangs ", text_of(r.place),
                                    ": nothing was heard of it for ", seconds(now - r.heard))};
  }
  return std::nullopt;
}

bool Vigil::stands_still(const Rank& rank, Clock::time_point now) const {
  const bool patient = is_patient(rank.place.phase);
  if (now - rank.worked > lost_after_ * (patient ? kFiles : 1)) return true;
  return !patient && now - rank.moved > lost_after_ * kComputing;
}

// Who waits, waits for somebody: for whom is furthest behind of those that do nothing.
std::optional<Vigil::Finding> Vigil::standing(Clock::time_point now) const {
  const Rank* still = nullptr;
  std::int64_t waiting = 0, newest = 0;
  bool long_enough = false;
  for (const Rank& r : ranks_) {
    if (r.dismissed) continue;
    if (r.place.waiting) {
      long_enough = long_enough || now - r.moved > lost_after_;
      ++waiting;
      newest = std::max(newest, r.place.collectives);
    } else if (stands_still(r, now) &&
               (still == nullptr || std::pair(r.place.collectives, r.moved) <
                                        std::pair(still->place.collectives, still->moved))) {
      still = &r;
    }
  }
  if (!long_enough || still == nullptr) return std::nullopt;
  return Finding{still->peer.rank,
                 cat(name_of(still->peer), " has stood still for ", seconds(now - still->moved),
                     " ", text_of(still->place), ", while ", waiting,
                     waiting == 1 ? " other waits" : " others wait", " in collective ", newest)};
}

std::optional<Vigil::Finding> Vigil::all_waiting(Clock::time_point now) const {
  std::vector<const Rank*> present;
  auto shortest = Clock::duration::max();
  for (const Rank& r : ranks_) {
    if (r.dismissed) continue;
    if (!r.place.waiting) return std::nullopt;
    present.push_back(&r);
    shortest = std::min(shortest, now - r.moved);
  }
  if (present.empty() || shortest <= lost_after_ * kTogether) return std::nullopt;
  std::stable_sort(present.begin(), present.end(), [](const Rank* a, const Rank* b) {
    return a->place.collectives < b->place.collectives;
  });
  std::vector<std::string> places;
  for (const Rank* r : present) {
    if (places.size() == kMostPlaces) {
      places.push_back(cat(present.size() - kMostPlaces, " more"));
      break;
    }
    places.push_back(cat(name_of(r->peer), " ", text_of(r->place)));
  }
  const std::size_t gone = ranks_.size() - present.size();
  return Finding{
      -1, cat("all ranks have waited for each other for ", seconds(shortest), ": ",
              join(places, "; "), gone > 0 ? cat("; ", gone, " had left already") : std::string())};
}

}  // namespace fovea::dist
