// Who is lost, by what ranks say and when.

#include "dist/vigil.h"

#include <doctest/doctest.h>

#include "data/temp_folder.h"

using namespace fovea;
using namespace fovea::test;
using dist::Place;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

constexpr double kIdle = 0, kBusy = 1;

// Three ranks that beat every second, with places that a test sets.
struct Watched {
  dist::Vigil::Clock::time_point now{};
  dist::Vigil vigil{{{0, "gpu01", 100}, {1, "gpu02", 200}, {2, "gpu03", 300}}, seconds(20), now};
  std::vector<Place> places{3};
  std::vector<double> busy{kIdle, kIdle, kIdle};
  std::vector<bool> beats{true, true, true};
  dist::Vigil::Finding found;

  // How many seconds pass before something is found, at most `most`.
  int passes(int most) {
    for (int second = 0; second < most; ++second) {
      now += seconds(1);
      for (std::size_t i = 0; i < places.size(); ++i) {
        if (beats[i]) vigil.note(static_cast<int>(i), places[i], busy[i], now);
      }
      if (const auto finding = vigil.look(now)) {
        found = *finding;
        return second + 1;
      }
    }
    return most;
  }
};

Place in(const char* phase, std::int64_t step, std::int64_t collectives, bool waiting) {
  return {phase, step, collectives, waiting};
}

}  // namespace

TEST_CASE("ranks that beat and wait for nobody are never lost") {
  Watched w;
  CHECK(w.passes(100'000) == 100'000);
}

TEST_CASE("a silent rank is named with the place that it had") {
  Watched w;
  w.places[1] = in("forward and backward", 120, 3401, false);
  w.passes(5);
  w.beats[1] = false;
  CHECK(w.passes(1000) == 21);
  CHECK(w.found.rank == 1);
  CHECK(w.found.message ==
        "rank 1 (host gpu02, pid 200) hangs in phase 'forward and backward', step 120, collective "
        "3401: nothing was heard of it for 21 s");
}

TEST_CASE("nothing is expected of a rank that has left") {
  Watched w;
  w.beats[1] = false;
  w.vigil.dismiss(1);
  CHECK(w.passes(1000) == 1000);
}

TEST_CASE("a rank that stands still while others wait is named") {
  Watched w;
  w.places = {in("evaluate", 12, 341, true), in("evaluate", 12, 340, false),
              in("evaluate", 12, 341, true)};
  CHECK(w.passes(1000) == 22);
  CHECK(w.found.rank == 1);
  CHECK(w.found.message ==
        "rank 1 (host gpu02, pid 200) has stood still for 21 s in phase 'evaluate', step 12, "
        "collective 340, while 2 others wait in collective 341");
}

TEST_CASE("of several that stand still the one furthest behind is named") {
  Watched w;
  w.places = {in("update", 12, 341, true), in("update", 12, 340, false),
              in("update", 12, 339, false)};
  w.passes(1000);
  CHECK(w.found.rank == 2);
}

TEST_CASE("a slow rank that moves is not lost") {
  Watched w;
  w.places = {in("update", 12, 341, true), in("update", 12, 340, false),
              in("update", 12, 341, true)};
  for (int i = 0; i < 100; ++i) {
    w.places[1].step = i;
    CHECK(w.passes(15) == 15);
  }
}

TEST_CASE("a rank that computes has long, but not for ever") {
  Watched w;
  w.places = {in("update", 12, 341, true), in("update", 12, 340, false),
              in("update", 12, 341, true)};
  w.busy[1] = kBusy;
  CHECK(w.passes(1000) == 602);
  CHECK(w.found.rank == 1);
}

TEST_CASE("a checkpoint has time for slow disks, a start for any computation") {
  Watched w;
  w.places = {in("checkpoint", 12, 340, false), in("checkpoint", 12, 341, true),
              in("checkpoint", 12, 341, true)};
  CHECK(w.passes(1000) == 602);
  CHECK(w.found.rank == 0);

  Watched start;
  start.places = {in("starting", 0, 0, false), in("starting", 0, 1, true),
                  in("starting", 0, 1, true)};
  start.busy[0] = kBusy;
  CHECK(start.passes(10'000) == 10'000);
}

TEST_CASE("ranks that all wait for each other are named together, the last one first") {
  Watched w;
  w.places = {in("update", 12, 341, true), in("update", 12, 341, true),
              in("update", 12, 340, true)};
  CHECK(w.passes(1000) == 202);
  CHECK(w.found.rank == -1);
  CHECK(contains(w.found.message,
                 "all ranks have waited for each other for 201 s: rank 2 (host gpu03, pid 300) in "
                 "phase 'update', step 12, collective 340; rank 0"));
}

TEST_CASE("a wait for ranks that have left says so") {
  Watched w;
  w.places[0] = w.places[1] = in("update", 12, 341, true);
  w.vigil.dismiss(2);
  w.passes(1000);
  CHECK(contains(w.found.message, "; 1 had left already"));
}

TEST_CASE("a process that was suspended, and all others with it, begins anew") {
  Watched w;
  w.places = {in("update", 12, 341, true), in("update", 12, 340, false),
              in("update", 12, 341, true)};
  w.passes(15);
  w.now += seconds(3600);
  CHECK_FALSE(w.vigil.look(w.now));
  CHECK(w.passes(15) == 15);
  w.places[1].collectives = 341;
  w.places[1].waiting = true;
  CHECK(w.passes(150) == 150);
}

TEST_CASE("a rank that died is named with the place that it had") {
  Watched w;
  w.places[2] = in("update", 120, 3401, true);
  w.passes(1);
  CHECK(w.vigil.died(2) ==
        "rank 2 (host gpu03, pid 300) died in phase 'update', step 120, collective 3401");
}
