#include "dist/signal_queue.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include <fcntl.h>
#include <unistd.h>

#include "core/error.h"
#include "core/text.h"

namespace fovea::dist {

namespace {

constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP, SIGCHLD};

// A signal handler has no arguments to receive state through. Blocking the signals instead would
// not do: threads that libraries start before main do not inherit that.
// NOLINTBEGIN(cppcoreguidelines-avoid-non-const-global-variables)
volatile std::sig_atomic_t write_end = -1;
std::array<struct sigaction, kSignals.size()> old_actions;
// NOLINTEND(cppcoreguidelines-avoid-non-const-global-variables)

void on_signal(int number) {
  const int kept = errno;
  const auto byte = static_cast<unsigned char>(number);
  [[maybe_unused]] const ssize_t written = ::write(write_end, &byte, 1);
  errno = kept;
}

void mask_stops(int how) noexcept {
  sigset_t stops;
  sigemptyset(&stops);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP})
    sigaddset(&stops, signal);
  ::pthread_sigmask(how, &stops, nullptr);
}

}  // namespace

void hold_stops_back() noexcept {
  mask_stops(SIG_BLOCK);
}

void let_stops_through() noexcept {
  mask_stops(SIG_UNBLOCK);
}

SignalQueue::SignalQueue() {
  FOVEA_ASSERT(write_end < 0);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
    throw IoError(cat("no pipe for signals: ", std::strerror(errno)));
  read_ = ends[0];
  write_end = ends[1];
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART | SA_NOCLDSTOP;
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    ::sigaction(kSignals[i], nullptr, &old_actions[i]);
    if (kSignals[i] == SIGHUP && old_actions[i].sa_handler == SIG_IGN) continue;
    ::sigaction(kSignals[i], &action, nullptr);
  }
}

SignalQueue::~SignalQueue() {
  for (std::size_t i = 0; i < kSignals.size(); ++i)
    ::sigaction(kSignals[i], &old_actions[i], nullptr);
  ::close(write_end);
  ::close(read_);
  write_end = -1;
}

std::vector<int> SignalQueue::take() {
  std::vector<int> stops;
  unsigned char byte = 0;
  while (::read(read_, &byte, 1) == 1) {
    if (byte != SIGCHLD) stops.push_back(byte);
  }
  return stops;
}

}  // namespace fovea::dist
