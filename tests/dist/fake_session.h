#pragma once
// Ranks as threads of one process: a Session over shared memory, for tests of what is built on it.

#include <condition_variable>
#include <csignal>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "dist/session.h"

namespace fovea::test {

// What the threads share.
class Meeting {
 public:
  void set(const std::string& key, std::string_view value) {
    const std::lock_guard lock(mutex_);
    values_[key] = value;
    changed_.notify_all();
  }
  std::string get(const std::string& key) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return values_.count(key) == 1; });
    return values_[key];
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

class FakeSession final : public dist::Session {
 public:
  FakeSession(Meeting& meeting, int rank, int size) : meeting_(meeting), rank_(rank) {
    for (int i = 0; i < size; ++i)
      peers_.push_back({i, "here", 1000 + i});
  }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(peers_.size()); }
  const std::vector<dist::Peer>& peers() const override { return peers_; }
  std::uint64_t launch_id() const override { return 1; }
  std::string local_address() const override { return "127.0.0.1"; }
  void set(const std::string& key, std::string_view value) override { meeting_.set(key, value); }
  std::string get(const std::string& key) override { return meeting_.get(key); }
  std::vector<std::string> gather(std::string_view mine) override {
    if (before_gather) before_gather(mine);
    const std::string round = "gather " + std::to_string(gathered_++) + " ";
    set(round + std::to_string(rank_), mine);
    std::vector<std::string> out;
    for (int i = 0; i < size(); ++i)
      out.push_back(get(round + std::to_string(i)));
    return out;
  }
  void leave() override { barrier(); }

  std::function<void(std::string_view mine)> before_gather;
  void fail(ExitCode /*code*/, const std::string& /*message*/) noexcept override {}

 private:
  Meeting& meeting_;
  int rank_, gathered_ = 0;
  std::vector<dist::Peer> peers_;
};

// Runs `work` on so many ranks at once, and rethrows the first rank's error.
inline void on_ranks(int size, const std::function<void(FakeSession&)>& work) {
  std::signal(SIGPIPE, SIG_IGN);  // as the binary does: Gloo writes to peers that may be gone
  Meeting meeting;
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        FakeSession session(meeting, rank, size);
        work(session);
      } catch (...) {
        errors[static_cast<std::size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace fovea::test
