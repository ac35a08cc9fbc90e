#pragma once
// The way into a session: connecting to rank 0 until it answers, and showing the token.

#include <cstdint>
#include <string>
#include <vector>

#include "core/error.h"
#include "dist/session.h"
#include "dist/wire.h"
#include "dist/world.h"

namespace fovea::dist {

struct Welcome {
  Channel channel;
  std::uint64_t launch_id = 0;
  std::string local_address;  // see Session::local_address()
  std::vector<Peer> peers;
};

// There will be no session.
struct NotJoined : Error {
  NotJoined(ExitCode code, int whose, const std::string& what)
      : Error(code, what), culprit(whose) {}
  int culprit;  // the rank that is why; -1: none alone
};

// Waits until all ranks are there. `token`: empty for one that rank 0 writes to the folder. server:
// where rank 0 is found. Throws NotJoined: after options.join_timeout at the latest, when rank 0
// refuses this rank for good, when another rank ends the run (with its code), or when options.stop
// says so (ExitCode::stopped), of which rank 0 is told.
Welcome enter(const World& world, const SessionOptions& options, const Address& server,
              std::string token);
// Only to say that this rank cannot take part, as soon as rank 0 is there; gives up after
// options.join_timeout.
void say_declined(const World& world, const SessionOptions& options, const Address& server,
                  std::string token, ExitCode code, const std::string& message);

std::string own_host_name();

}  // namespace fovea::dist
