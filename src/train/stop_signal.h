#pragma once
// SIGINT, SIGTERM and SIGHUP (a lost terminal): the first asks for a stop, the second ends the
// process at once. An equal one within a second of the first is the same wish.

namespace fovea::train {

class StopSignal {
 public:
  // Installs the handlers; the destructor puts the old ones back. One at a time in a process.
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  bool requested() const;
};

}  // namespace fovea::train
