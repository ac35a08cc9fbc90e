#pragma once
// SIGINT, SIGTERM and SIGHUP (a lost terminal): the first asks for a stop, the second ends the
// process at once.

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
