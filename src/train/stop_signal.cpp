#include "train/stop_signal.h"

#include <csignal>
#include <cstdint>
#include <cstring>
#include <ctime>

#include <unistd.h>

#include "dist/signal_queue.h"

namespace fovea::train {

namespace {

// A signal handler has no arguments to receive state through.
// NOLINTBEGIN(cppcoreguidelines-avoid-non-const-global-variables)
volatile std::sig_atomic_t first_signal = 0;
volatile std::int64_t first_at = 0;  // read in a handler only after another has ended
struct sigaction old_interrupt, old_terminate, old_hangup;
int depth = 0;
// NOLINTEND(cppcoreguidelines-avoid-non-const-global-variables)

std::int64_t milliseconds() {  // safe in a handler
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

// Equal signals so close are one wish: timeout(1) signals its child, and then the group it is in.
constexpr std::int64_t kOneWish = 1000;

void on_signal(int number) {
  if (first_signal != 0) {
    if (number == first_signal && milliseconds() - first_at < kOneWish) return;
    ::_exit(128 + number);
  }
  first_signal = number;
  first_at = milliseconds();
  static constexpr char kText[] = "stopping after this step; once more to stop at once\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, kText, sizeof kText - 1);
}

}  // namespace

StopSignal::StopSignal() {
  if (depth++ > 0) return;
  first_signal = 0;
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;  // writes of logs and checkpoints go on
  ::sigaction(SIGINT, &action, &old_interrupt);
  ::sigaction(SIGTERM, &action, &old_terminate);
  ::sigaction(SIGHUP, nullptr, &old_hangup);
  if (old_hangup.sa_handler != SIG_IGN) ::sigaction(SIGHUP, &action, nullptr);
  dist::let_stops_through();
}

StopSignal::~StopSignal() {
  if (--depth > 0) return;
  ::sigaction(SIGINT, &old_interrupt, nullptr);
  ::sigaction(SIGTERM, &old_terminate, nullptr);
  ::sigaction(SIGHUP, &old_hangup, nullptr);
}

bool StopSignal::requested() const {
  return first_signal != 0;
}

}  // namespace fovea::train
