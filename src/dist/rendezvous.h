#pragma once
// The way into a session: connecting to rank 0 until it answers, and showing the token.

#include <cstdint>
#include <string>
#include <vector>

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

// Waits until all ranks are there. `token`: empty for one that rank 0 writes to the folder. server:
// where rank 0 is found. Throws CommunicationError, after options.join_timeout at the latest or
// when rank 0 refuses this rank for good.
Welcome enter(const World& world, const SessionOptions& options, const Address& server,
              std::string token);

std::string own_host_name();

}  // namespace fovea::dist
