#include "dist/launcher.h"

#include <algorithm>
#include <csignal>
#include <sstream>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "core/log.h"
#include "core/text.h"
#include "dist/signal_queue.h"
#include "dist/workers.h"

namespace fovea::dist {

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kLongestBackoff{60'000};
constexpr std::size_t kMostPids = 32;  // in a line

// A pipe or socket must not get the number of a standard stream that is closed: the children's are
// put there.
void open_standard_streams() {
  int descriptor = -1;
  do {
    descriptor = ::open("/dev/null", O_RDWR);
  } while (descriptor >= 0 && descriptor <= STDERR_FILENO);
  if (descriptor >= 0) ::close(descriptor);
}

std::string plural(std::int64_t count, const std::string& word) {
  return cat(count, " ", word, count == 1 ? "" : "es");
}

// Waits so long; true if a signal asked for a stop meanwhile.
bool stopped_within(SignalQueue& signals, milliseconds wait) {
  const auto until = steady_clock::now() + wait;
  while (signals.take().empty()) {
    const auto left = std::chrono::ceil<milliseconds>(until - steady_clock::now()).count();
    if (left <= 0) return false;
    pollfd source{signals.descriptor(), POLLIN, 0};
    ::poll(&source, 1, static_cast<int>(left));
  }
  return true;
}

// Starts a run again and again, as far as that makes sense.
class Launch {
 public:
  explicit Launch(const LaunchOptions& options)
      : options_(options), processes_(options.processes), devices_(options.devices) {}

  LaunchResult run() {
    if (options_.stop && options_.stop()) {
      log::warn("a signal asked for a stop before the start");
      return {ExitCode::stopped, {}, {}};
    }
    for (int restart = 0;; ++restart) {
      const std::int64_t before = progress();
      const WorkersEnd end = start();
      tell(end);
      if (end.message.empty() || end.stop_asked || !end.may_pass) return result(end);
      // A device that worked before may work again, or be left out.
      if (end.no_device && restart == 0) return result(end);
      if (restart == options_.max_restarts) {
        if (restart > 0) log::error(cat("given up after ", restart, " restarts"));
        return result(end);
      }
      const bool gained = progress() > before;
      in_vain_ = gained ? 0 : in_vain_ + 1;
      if (restart > 0 && !gained) halve(end.suspect);
      if (!pause(restart + 1)) return {ExitCode::stopped, {}, {}};
    }
  }

 private:
  std::int64_t progress() const { return options_.progress ? options_.progress() : -1; }

  WorkersEnd start() {
    Workers workers(options_, processes_, devices_);
    std::vector<std::string> pids;
    for (const pid_t pid : workers.pids())
      pids.push_back(cat(pid));
    if (pids.size() > kMostPids) {
      const std::size_t more = pids.size() - kMostPids;
      pids.resize(kMostPids);
      pids.push_back(cat(more, " more"));
    }
    log::info(cat("started ", plural(processes_, "process"), ": pid ", join(pids, ", ")));
    return workers.wait(signals_);
  }

  static void tell(const WorkersEnd& end) {
    std::istringstream lines(end.words);
    for (std::string line; std::getline(lines, line);)
      log::line(cat("rank ", end.failed, ": ", line));
    if (!end.message.empty()) log::error(end.message);
  }

  // Keeps the half without the suspect: it may be the device.
  void halve(int suspect) {
    if (options_.min_processes < 1 || processes_ / 2 < options_.min_processes) return;
    const int half = processes_ / 2;
    if (!devices_.empty()) {
      const int first = suspect < half ? processes_ - half : 0;
      devices_ = {devices_.begin() + first, devices_.begin() + first + half};
    }
    processes_ = half;
  }

  // False if a signal asked for a stop meanwhile.
  bool pause(int restart) {
    const int doublings = std::clamp(in_vain_ - 1, 0, 10);
    const milliseconds wait = std::min(options_.backoff * (1 << doublings), kLongestBackoff);
    const std::int64_t step = progress();
    log::warn(
        cat("restart ", restart, " of ", options_.max_restarts, " in ",
            static_cast<double>(wait.count()) / 1000, " s with ", plural(processes_, "process"),
            "; last checkpoint known: ", step < 0 ? std::string("none") : cat("step ", step)));
    if (!stopped_within(signals_, wait)) return true;
    log::warn("a signal asked for a stop before the restart");
    return false;
  }

  LaunchResult result(const WorkersEnd& end) const { return {end.code, end.message, end.output}; }

  const LaunchOptions& options_;
  SignalQueue signals_;
  int processes_;
  std::vector<std::string> devices_;
  int in_vain_ = 0;  // failures in a row without progress
};

}  // namespace

LaunchResult launch(const LaunchOptions& options) {
  FOVEA_ASSERT(options.processes >= 1);
  open_standard_streams();
  return Launch(options).run();
}

}  // namespace fovea::dist
