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
#include "dist/verdict.h"

namespace fovea::dist {

// How a start of a run ended.
struct WorkersEnd {
  ExitCode code = ExitCode::ok;
  int failed = -1;          // the rank that failed, as the ranks say, or else first; -1: none
  int suspect = -1;         // the rank that may be why: the same, or one that hung
  std::string message;      // about them
  std::string words;        // the last lines of its stderr, if they were not passed through
  std::string output;       // rank 0's stdout, if captured
  bool may_pass = false;    // the failure is of a kind that another start may not meet
  bool no_device = false;   // for a rank to begin with
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

  void start(int rank, const std::vector<std::string>& settings, std::vector<int> keep);
  void close_pipes();
  void watch(const SignalQueue& signals);
  void drain();
  void hand_on(const std::vector<int>& stops);
  void send(int signal);
  int reap();  // how many are left
  void press();
  std::string name_of(std::size_t rank) const;
  std::optional<std::size_t> first_failure() const;
  std::string reaction_of(std::size_t rank) const;
  std::string unwilling(std::size_t but) const;
  std::string words_of(std::size_t failed, const Verdict& otherwise) const;
  WorkersEnd result() const;
  void explain(WorkersEnd& end, std::size_t first) const;

  const LaunchOptions& options_;
  std::vector<Worker> workers_;
  std::vector<std::size_t> ended_;  // ranks that ended before they were pressed, as it was seen
  int verdict_pipe_ = -1;           // where the ranks say whose failure it is
  std::string verdict_text_;
  std::vector<Verdict> verdicts_;
  Pressure pressure_ = Pressure::none;
  std::optional<std::chrono::steady_clock::time_point> deadline_;  // of the pressure
  int stops_ = 0, stop_signal_ = 0;
  std::chrono::steady_clock::time_point stopped_at_;  // the last of stops_
};

}  // namespace fovea::dist
