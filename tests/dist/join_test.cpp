// Runs that end before they begin: a rank is asked to stop, cannot take part, or does not come.

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include <doctest/doctest.h>
#include <fcntl.h>

#include "dist/session_ranks.h"
#include "dist/verdict.h"

using namespace fovea;
using namespace fovea::test;
using std::chrono::milliseconds;

namespace {

struct Outcome {
  ExitCode code = ExitCode::ok;
  std::string message;
};

// Ranks that wait for others, so many of a world of three or four; what became of each.
class Waiting {
 public:
  explicit Waiting(int size) : size_(size) {}
  ~Waiting() {
    if (listener_ >= 0) ::close(listener_);
    for (std::thread& thread : threads_)
      thread.join();
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

  dist::World world(int rank) {
    dist::World out = world_of(rank, size_, port_);
    if (rank == 0) out.listener = std::exchange(listener_, -1);
    return out;
  }
  void join(int rank, std::function<bool()> stop = {}, int verdict = -1,
            const std::string& command = {}) {
    dist::World own = world(rank);
    own.verdict = verdict;
    threads_.emplace_back([this, rank, own, stop, command] {
      Outcome& out = outcomes[static_cast<std::size_t>(rank)];
      dist::SessionOptions options = quick_options();
      options.stop = stop;
      options.command = command;
      try {
        dist::Session::join(own, options);
      } catch (const Error& e) {
        out = {e.code(), e.what()};
      }
    });
  }
  void decline(int rank, ExitCode code, const std::string& why) {
    const dist::World own = world(rank);
    threads_.emplace_back([=] { dist::Session::decline(own, quick_options(), code, why); });
  }
  void finish() {
    for (std::thread& thread : threads_)
      thread.join();
    threads_.clear();
  }

  std::array<Outcome, 4> outcomes;

 private:
  int size_;
  Listener socket_;
  int port_ = socket_.port(), listener_ = socket_.release();
  std::vector<std::thread> threads_;
};

std::string name(int rank) {
  return dist::name_of({rank, dist::Session::join({}, {})->peers().front().host, ::getpid()});
}

}  // namespace

TEST_CASE("a rank that is asked to stop while others are awaited ends all, at once and resumable") {
  for (const int asked : {0, 1}) {
    Waiting run(3);
    std::atomic<bool> stop{false};
    for (const int rank : {0, 1})
      run.join(rank, rank == asked ? std::function<bool()>([&] { return stop.load(); }) : nullptr);
    std::this_thread::sleep_for(milliseconds(300));
    const auto before = std::chrono::steady_clock::now();
    stop = true;
    run.finish();
    CHECK(std::chrono::steady_clock::now() - before < std::chrono::seconds(20));
    const std::string why = "a signal asked for a stop before all ranks were there";
    const auto own = static_cast<std::size_t>(asked);
    CHECK(run.outcomes[own].code == ExitCode::stopped);
    CHECK(run.outcomes[own].message == "rank " + std::to_string(asked) + " of 3: " + why);
    CHECK(run.outcomes[1 - own].code == ExitCode::stopped);
    CHECK(run.outcomes[1 - own].message == name(asked) + " ended: " + why);
  }
}

TEST_CASE("ranks that come a little after rank 0 was asked to stop hear of it") {
  Waiting run(2);
  run.join(0, [] { return true; });
  std::this_thread::sleep_for(milliseconds(500));
  run.join(1);
  run.finish();
  CHECK(run.outcomes[0].code == ExitCode::stopped);
  CHECK(run.outcomes[1].code == ExitCode::stopped);
}

TEST_CASE("a rank that finds nobody can be asked to stop, too") {
  Waiting run(2);
  run.join(1, [] { return true; });
  run.finish();
  CHECK(run.outcomes[1].code == ExitCode::stopped);
}

TEST_CASE("a rank that cannot take part ends those who wait, and those who come, with its code") {
  for (const int unable : {0, 1}) {
    CAPTURE(unable);
    Waiting run(4);
    run.join(unable == 0 ? 1 : 0);
    std::this_thread::sleep_for(milliseconds(100));
    run.decline(unable, ExitCode::usage, "out: another process trains in this folder");
    std::this_thread::sleep_for(milliseconds(400));
    run.join(2);
    run.join(3);
    run.finish();
    for (const int rank : {1 - unable, 2, 3}) {
      const Outcome& out = run.outcomes[static_cast<std::size_t>(rank)];
      CHECK(out.code == ExitCode::usage);
      CHECK(out.message == name(unable) + " ended: out: another process trains in this folder");
    }
  }
}

TEST_CASE("ranks that were started with other commands end at once, with both") {
  for (const int other : {0, 2}) {
    CAPTURE(other);
    Waiting run(3);
    for (const int rank : {0, 1, 2})
      run.join(rank, {}, -1, rank == other ? "fovea eval" : "fovea train");
    run.finish();
    for (const Outcome& out : {run.outcomes[0], run.outcomes[1], run.outcomes[2]}) {
      CHECK(out.code == ExitCode::usage);
      CHECK(contains(out.message,
                     other == 0 ? "was started as 'fovea train', but rank 0 as 'fovea eval'"
                                : "was started as 'fovea eval', but rank 0 as 'fovea train'"));
      CHECK(contains(out.message, other == 0 ? "rank " : name(2)));
    }
  }
}

TEST_CASE("the launcher hears who could not take part from him and from the others") {
  std::array<int, 2> ends{};
  REQUIRE(::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) == 0);
  {
    Waiting run(2);
    run.join(0, {}, ends[1]);
    run.decline(1, ExitCode::data, "its disk");
    run.finish();
    CHECK(run.outcomes[0].code == ExitCode::data);
  }
  std::string bytes(4096, '\0');
  bytes.resize(static_cast<std::size_t>(::read(ends[0], bytes.data(), bytes.size())));
  const std::vector<dist::Verdict> verdicts = dist::take_verdicts(bytes);
  ::close(ends[0]);
  ::close(ends[1]);
  REQUIRE(verdicts.size() == 1);
  CHECK(verdicts[0].by == 0);
  CHECK(verdicts[0].culprit == 1);
  CHECK(verdicts[0].code == ExitCode::data);
}
