#pragma once
// Signals as something to wait for, for a process that looks after others.

#include <vector>

namespace fovea::dist {

// While it lives, SIGINT, SIGTERM and SIGHUP (unless it is ignored: nohup) are collected, and the
// end of a child wakes who waits. One at a time in a process.
class SignalQueue {
 public:
  SignalQueue();
  ~SignalQueue();
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;

  // Readable when something arrived.
  int descriptor() const { return read_; }
  // The stop signals since the last call, in their order.
  std::vector<int> take();

 private:
  int read_ = -1;
};

// The stop signals wait until somebody takes them (a child inherits that), and go through again.
void hold_stops_back() noexcept;
void let_stops_through() noexcept;

}  // namespace fovea::dist
