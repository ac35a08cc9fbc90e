// Ranks as processes that are stopped, killed and continued.

#include <array>
#include <chrono>
#include <csignal>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include <doctest/doctest.h>
#include <sys/wait.h>

#include "core/log.h"
#include "dist/session_ranks.h"

using namespace fovea;
using namespace fovea::test;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

constexpr int kRanks = 3;

std::string text_in(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Processes that wait for each other over and over, until a file `stop` is there, and then leave.
class Processes {
 public:
  Processes() {
    Listener listener;
    const int port = listener.port(), descriptor = listener.release();
    for (int rank = 0; rank < kRanks; ++rank) {
      pids_[static_cast<std::size_t>(rank)] = ::fork();
      if (pids_[static_cast<std::size_t>(rank)] == 0) run(rank, port, descriptor);
    }
    ::close(descriptor);
    for (int rank = 0; rank < kRanks; ++rank)
      await([&] { return !text_in(folder_ / ("at " + std::to_string(rank))).empty(); });
  }
  ~Processes() {
    for (std::size_t i = 0; i < pids_.size(); ++i) {
      if (ended_[i]) continue;
      ::kill(pids_[i], SIGKILL);
      ::waitpid(pids_[i], nullptr, 0);
    }
  }
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  void send(int rank, int signal) { ::kill(pids_[static_cast<std::size_t>(rank)], signal); }
  void stop() { folder_.put("stop", "now"); }
  std::string log(int rank) const { return text_in(folder_ / ("log " + std::to_string(rank))); }
  std::string name(int rank) const {
    return "pid " + std::to_string(pids_[static_cast<std::size_t>(rank)]) + ")";
  }
  // The exit code; 128 + a signal's number; -1 if it has not ended within a minute.
  int code(int rank) {
    const pid_t pid = pids_[static_cast<std::size_t>(rank)];
    int status = 0;
    if (!await([&] { return ::waitpid(pid, &status, WNOHANG) == pid; })) return -1;
    ended_[static_cast<std::size_t>(rank)] = true;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  template <class Condition>
  static bool await(const Condition& condition) {
    for (int i = 0; i < 6000; ++i) {
      if (condition()) return true;
      std::this_thread::sleep_for(milliseconds(10));
    }
    return false;
  }

  [[noreturn]] void run(int rank, int port, int descriptor) {
    int code = 1;
    try {
      log::console(false);
      log::to_file(folder_ / ("log " + std::to_string(rank)));
      dist::SessionOptions options = quick_options();
      options.lost_after = milliseconds(1500);
      dist::World world = world_of(rank, kRanks, port);
      if (rank == 0) world.listener = descriptor;
      const auto session = dist::Session::join(world, options);
      for (int step = 0;; ++step) {
        session->at("update", step);
        const bool stop = rank == 0 && !text_in(folder_ / "stop").empty();
        if (session->gather(stop ? "stop" : "").front() == "stop") break;
        if (step == 10) std::ofstream(folder_ / ("at " + std::to_string(rank))) << "it\n";
        std::this_thread::sleep_for(milliseconds(20));
      }
      session->leave();
      code = 0;
    } catch (const Error& e) {
      log::error(e.what());
      log::flush();
      code = static_cast<int>(e.code());
    }
    ::_exit(code);
  }

  TempFolder folder_;
  std::array<pid_t, kRanks> pids_{};
  std::array<bool, kRanks> ended_{};
};

constexpr int kLost = static_cast<int>(ExitCode::communication);

}  // namespace

TEST_CASE("a stopped rank is named by all others, and by itself when it wakes up") {
  Processes ranks;
  ranks.send(1, SIGSTOP);
  for (const int rank : {0, 2}) {
    CHECK(ranks.code(rank) == kLost);
    CHECK(contains(ranks.log(rank), "rank 1 (host "));
    CHECK(contains(ranks.log(rank), ranks.name(1) + " hangs in phase 'update', step "));
  }
  ranks.send(1, SIGCONT);
  CHECK(ranks.code(1) == kLost);
  INFO(ranks.log(1));
  CHECK(contains(ranks.log(1), ranks.name(1) + " hangs in phase 'update', step "));
}

TEST_CASE("a stopped rank 0 is named by all others, and by itself when it wakes up") {
  Processes ranks;
  ranks.send(0, SIGSTOP);
  for (const int rank : {1, 2}) {
    CHECK(ranks.code(rank) == kLost);
    CHECK(contains(ranks.log(rank), ranks.name(0) + " hangs in phase 'update', step "));
  }
  ranks.send(0, SIGCONT);
  CHECK(ranks.code(0) == kLost);
  INFO(ranks.log(0));
  CHECK(contains(ranks.log(0), ranks.name(0) + " hangs in phase 'update', step "));
}

TEST_CASE("a killed rank is named by all others") {
  for (const int killed : {0, 2}) {
    Processes ranks;
    ranks.send(killed, SIGKILL);
    CHECK(ranks.code(killed) == 128 + SIGKILL);
    for (int rank = 0; rank < kRanks; ++rank) {
      if (rank == killed) continue;
      CHECK(ranks.code(rank) == kLost);
      INFO(ranks.log(rank));
      CHECK(contains(ranks.log(rank), ranks.name(killed) + " died in phase 'update', step "));
    }
  }
}

TEST_CASE("a run that is suspended as a whole goes on afterwards") {
  Processes ranks;
  for (int rank = 0; rank < kRanks; ++rank)
    ranks.send(rank, SIGSTOP);
  std::this_thread::sleep_for(seconds(4));
  for (int rank = 0; rank < kRanks; ++rank)
    ranks.send(rank, SIGCONT);
  std::this_thread::sleep_for(milliseconds(500));
  ranks.stop();
  for (int rank = 0; rank < kRanks; ++rank) {
    CHECK(ranks.code(rank) == 0);
    CHECK(ranks.log(rank).empty());
  }
}
