#pragma once
// What the processes of one run say to each other besides tensors: who they are, small messages,
// and that they are alive. One TCP connection a rank, to a server that rank 0 runs; nobody takes
// part without the run's token. Where a rank dies, hangs or gives up, every other rank names it in
// its log and ends, whatever it is doing.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "dist/world.h"

namespace fovea::dist {

struct Peer {
  int rank = 0;
  std::string host;
  long pid = 0;
};
std::string name_of(const Peer& peer);  // "rank 2 (host gpu07, pid 4711)"

struct SessionOptions {
  std::string folder;  // where the token's file is, if World has none; all ranks see it
  // What is to be done together, as it was typed: "fovea train". Ranks with different ones end with
  // ExitCode::usage. Empty: anything.
  std::string command;
  std::chrono::milliseconds join_timeout{120'000};  // until all ranks are there
  std::chrono::milliseconds beat{1'000};            // between signs of life
  // Without a sign of life, or standing still while others wait: it is lost.
  std::chrono::milliseconds lost_after{20'000};
  std::chrono::milliseconds greeting{5'000};  // within which a connection shows the token
  // Whether this process was asked to stop: looked at while it waits for the others to come. Empty:
  // never.
  std::function<bool()> stop;
  // Called once, by another thread, when this rank must end because of another: the message names
  // it. Does not return in a program; if it does, every call that waits throws. Empty: logs the
  // message and ends the process with the code.
  std::function<void(ExitCode, const std::string& message)> on_failure;
};

class Session {
 public:
  // Waits for all ranks. A run of one process gets a session without network. To be called by the
  // thread that does the run's work: whether it computes tells a slow rank from a hung one. Throws
  // CommunicationError: who is missing, a token that is refused, an address that cannot be used; an
  // Error of ExitCode::stopped when options.stop says so, of which all others hear; of
  // ExitCode::usage where ranks were started with other commands; and the error of another rank
  // that cannot take part, with its code.
  static std::unique_ptr<Session> join(const World& world, const SessionOptions& options);
  // Instead of join(), for a rank that cannot take part: those who wait for it, or come within a
  // few seconds, end at once with the code, and log the message with this rank's name.
  static void decline(const World& world, const SessionOptions& options, ExitCode code,
                      const std::string& message) noexcept;
  virtual ~Session() = default;  // without leave(): the others hear that this rank is gone

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual const std::vector<Peer>& peers() const = 0;  // by rank
  // A random number of this start of the run, the same on all ranks.
  virtual std::uint64_t launch_id() const = 0;
  // The address by which the other ranks reach this machine: the one to listen on for tensors.
  virtual std::string local_address() const = 0;

  // Calls that wait throw CommunicationError when a rank is lost.
  // A store that all ranks share: get() waits until somebody has set the key. Any thread.
  virtual void set(const std::string& key, std::string_view value) = 0;
  virtual std::string get(const std::string& key) = 0;
  // Everybody's bytes, by rank, on every rank; at most 1 GiB together. Called by all ranks in the
  // same order, by one thread of each at a time. Counts as a collective operation, unless inside of
  // one.
  virtual std::vector<std::string> gather(std::string_view mine) = 0;
  void barrier() { gather({}); }

  // Where this rank stands, for the others' messages; cheap. `phase` is a static string: "forward
  // and backward". "starting" and "checkpoint" have time for slow disks.
  void at(const char* phase, std::int64_t step) {
    const bool moved = phase != this->phase() || step != this->step();
    phase_.store(phase, std::memory_order_relaxed);
    step_.store(step, std::memory_order_relaxed);
    if (moved) on_move();
  }
  // Around each collective operation on tensors, or around the host's waiting for it: counts it.
  void enter_collective() {
    count_collective();
    waiting_.store(true, std::memory_order_relaxed);
  }
  void leave_collective() { waiting_.store(false, std::memory_order_relaxed); }

  const char* phase() const { return phase_.load(std::memory_order_relaxed); }
  std::int64_t step() const { return step_.load(std::memory_order_relaxed); }
  std::int64_t collectives() const { return collectives_.load(std::memory_order_relaxed); }
  bool waiting() const { return waiting_.load(std::memory_order_relaxed); }

  // In good order: returns when all ranks have left.
  virtual void leave() = 0;
  // This rank gives up: all others end with the same code, and log the message with this rank's
  // name. Returns when they were told. With ExitCode::communication the others' news go first: if a
  // rank was lost, this rank ends by on_failure with its name.
  virtual void fail(ExitCode code, const std::string& message) noexcept = 0;

 protected:
  void count_collective() { collectives_.fetch_add(1, std::memory_order_relaxed); }
  // The others are to hear of the new place. Called by the thread that does the run's work.
  virtual void on_move() noexcept {}

 private:
  std::atomic<const char*> phase_{"starting"};
  std::atomic<std::int64_t> step_{0}, collectives_{0};
  std::atomic<bool> waiting_{false};
};

}  // namespace fovea::dist
