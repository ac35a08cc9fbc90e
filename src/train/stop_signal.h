#pragma once
// SIGINT, SIGTERM and SIGHUP (a lost terminal, unless it is ignored: nohup): the first asks for a
// stop, the second ends the process at once. An equal one within a second of the first is the same
// wish.

namespace fovea::train {

class StopSignal {
 public:
  // Installs the handlers and lets the signals through if they were held back; the destructor puts
  // the old handlers back. One inside of another shares its wish. Of one thread.
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  bool requested() const;
};

}  // namespace fovea::train
