#pragma once
// Around a collective operation that the host waits in.

#include "dist/session.h"

namespace fovea::dist {

// While it lives, a rank that stands still here is one that others wait for, or that waits.
class Collective {
 public:
  explicit Collective(Session& session) : session_(session) { session_.enter_collective(); }
  ~Collective() { session_.leave_collective(); }
  Collective(const Collective&) = delete;
  Collective& operator=(const Collective&) = delete;

 private:
  Session& session_;
};

}  // namespace fovea::dist
