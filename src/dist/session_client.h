#pragma once
// A rank's end of a session over TCP. Rank 0's has the server with it.

#include <memory>
#include <string>

#include "core/error.h"
#include "dist/session.h"
#include "dist/world.h"

namespace fovea::dist {

// See Session::join(), for worlds of more than one rank.
std::unique_ptr<Session> join_over_tcp(const World& world, const SessionOptions& options);
// See Session::decline(), for the same.
void decline_over_tcp(const World& world, const SessionOptions& options, ExitCode code,
                      const std::string& message) noexcept;

}  // namespace fovea::dist
