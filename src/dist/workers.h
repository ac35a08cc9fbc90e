#pragma once
// The processes of one start of a run, from the first to the last of them.

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "dist/child_process.h"
#include "dist/launcher.h"
#include "dist/signal_queue.h"

namespace fovea::dist {

// How a start of a run ended.
struct WorkersEnd {
  ExitCode code = ExitCode::ok;
  int failed = -1;          // the rank that failed first; -1: none
  int suspect = -1;         // the rank that may be why: it hung, or failed first
  std::string message;      // about them
  std::string words;        // the last lines of its stderr, if they were not passed through
  std::string output;       // rank 0's stdout, if captured
  bool may_pass = false;    // the failure is of a kind that another start may not meet
  bool stop_asked = false;  // by a signal
};

class Workers {
 public:
  // Starts them all. devices: see LaunchOptions. Throws IoError; then none is left. The options
  // must outlive it.
  Workers(const LaunchOptions& options, int processes, const std::vector<std::string>& devices);
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  std::vector<pid_t> pids() const;  // by rank
  // Hands signals on and returns when all have ended, by themselves or because one failed.
  WorkersEnd wait(SignalQueue& signals);

 private:
  struct Worker {
    std::unique_ptr<ChildProcess> process;
    int out = -1, err = -1;  // where its stdout and stderr come from; -1: they are passed through
    std::string out_text, err_text;
    bool ended = false, had_to_be_killed = false;
  };
  // On those that are left after a failure.
  enum class Pressure { none, grace, asked, killed, given_up };

  void start(int rank, const std::vector<std::string>& settings, int listener);
  void close_pipes();
  void watch(const SignalQueue& signals);
  void drain();
  void hand_on(const std::vector<int>& stops);
  void send(int signal);
  int reap();  // how many are left
  void press();
  std::string name_of(std::size_t rank) const;
  std::optional<std::size_t> first_failure() const;
  WorkersEnd result();

  const LaunchOptions& options_;
  std::vector<Worker> workers_;
  std::vector<std::size_t> ended_;  // ranks that ended before they were pressed, as it was seen
  Pressure pressure_ = Pressure::none;
  std::optional<std::chrono::steady_clock::time_point> deadline_;  // of the pressure
  int stops_ = 0, stop_signal_ = 0;
};

}  // namespace fovea::dist
