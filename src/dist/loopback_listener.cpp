#include "dist/loopback_listener.h"

#include <array>
#include <cerrno>
#include <cstring>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/error.h"
#include "core/text.h"

namespace fovea::dist {

namespace {

constexpr int kBacklog = 1'024;  // ranks that connect before rank 0 is ready for them

std::string random_token() {
  std::array<unsigned char, 16> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    throw IoError(cat("no random numbers: ", std::strerror(errno)));
  std::string out;
  for (const unsigned char byte : bytes) {
    out.push_back("0123456789abcdef"[byte >> 4]);
    out.push_back("0123456789abcdef"[byte & 15]);
  }
  return out;
}

}  // namespace

LoopbackListener::LoopbackListener() : token_(random_token()) {
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  if (listener_ < 0 || ::bind(listener_, any, size) != 0 || ::listen(listener_, kBacklog) != 0 ||
      ::getsockname(listener_, any, &size) != 0) {
    const int error = errno;
    if (listener_ >= 0) ::close(listener_);
    throw IoError(cat("no socket on 127.0.0.1 for the processes to meet: ", std::strerror(error)));
  }
  address_ = cat("127.0.0.1:", static_cast<int>(ntohs(address.sin_port)));
}

LoopbackListener::~LoopbackListener() {
  ::close(listener_);
}

}  // namespace fovea::dist
