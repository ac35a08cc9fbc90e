#include "dist/socket.h"

#include <cerrno>
#include <charconv>
#include <cstdint>
#include <memory>
#include <string_view>
#include <system_error>

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/error.h"
#include "core/text.h"

namespace fovea::dist {

namespace {

constexpr int kBacklog = 512;

using Addresses = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

Addresses resolve(const char* host, int port, int flags, std::string& why) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  const int code = ::getaddrinfo(host, cat(port).c_str(), &hints, &found);
  if (code != 0) why = cat(host == nullptr ? "" : host, ": ", ::gai_strerror(code));
  return {code == 0 ? found : nullptr, [](addrinfo* a) {
            if (a != nullptr) ::freeaddrinfo(a);
          }};
}

std::string text_of_errno(int error) {
  return std::generic_category().message(error);
}

void set_option(const Socket& socket, int level, int name) {
  const int on = 1;
  ::setsockopt(socket.get(), level, name, &on, sizeof on);
}

void set_options(const Socket& socket) {
  set_option(socket, IPPROTO_TCP, TCP_NODELAY);
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE);
}

Address address_of(int (*query)(int, sockaddr*, socklen_t*), const Socket& socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  char host[NI_MAXHOST] = "?", port[NI_MAXSERV] = "0";
  if (query(socket.get(), any, &size) != 0 ||
      ::getnameinfo(any, size, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return {"?", 0};
  Address out{host, 0};
  const std::string_view digits = port;
  std::from_chars(digits.data(), digits.data() + digits.size(), out.port);
  // A socket of both families shows IPv4 peers so.
  constexpr std::string_view kMapped = "::ffff:";
  if (out.host.starts_with(kMapped) && out.host.find('.') != std::string::npos)
    out.host.erase(0, kMapped.size());
  return out;
}

// Waits for a connection that is being made. 0 or an error number.
int finish_connecting(const Socket& socket, std::chrono::milliseconds timeout) {
  pollfd out{socket.get(), POLLOUT, 0};
  const int ready = ::poll(&out, 1, static_cast<int>(timeout.count()));
  if (ready == 0) return ETIMEDOUT;
  if (ready < 0) return errno;
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  return error;
}

// On a port of the range that systems give away, a connection to nobody may meet itself.
bool is_own_echo(const Socket& socket) {
  const Address near = near_end(socket), far = far_end(socket);
  return near.port == far.port && near.host == far.host;
}

}  // namespace

void Socket::close() {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

Socket listen_on(const std::string& host, int port, bool everywhere) {
  std::string why;
  const std::string where = text_of(Address{host, port});
  const Addresses own = resolve(host.c_str(), port, 0, why);
  if (own == nullptr) throw CommunicationError(cat("rendezvous at ", where, ": ", why));
  const Addresses all =
      everywhere ? resolve(nullptr, port, AI_PASSIVE, why) : Addresses(nullptr, own.get_deleter());
  for (const addrinfo* at = everywhere ? all.get() : own.get(); at != nullptr; at = at->ai_next) {
    if (everywhere && at->ai_family != own->ai_family) continue;
    Socket out(::socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    set_option(out, SOL_SOCKET, SO_REUSEADDR);
    if (out.is_open() && ::bind(out.get(), at->ai_addr, at->ai_addrlen) == 0 &&
        ::listen(out.get(), kBacklog) == 0)
      return out;
    why = text_of_errno(errno);
  }
  throw CommunicationError(cat(
      "rendezvous at ", where, ": rank 0 cannot listen there: ", why,
      "; if another program has the port, choose one: FOVEA_RENDEZVOUS=host:port, for all ranks"));
}

Socket listen_on(int descriptor) {
  Socket out(descriptor);
  const int flags = ::fcntl(descriptor, F_GETFL);
  if (flags < 0 || ::fcntl(descriptor, F_SETFL, flags | O_NONBLOCK) != 0 ||
      ::fcntl(descriptor, F_SETFD, FD_CLOEXEC) != 0)
    throw CommunicationError(
        cat("FOVEA_LISTENER is ", descriptor, ", but that is no socket: ", text_of_errno(errno)));
  return out;
}

Socket accept_from(const Socket& listener) {
  Socket out(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (out.is_open()) set_options(out);
  return out;
}

Socket connect_to(const std::string& host, int port, std::chrono::milliseconds timeout,
                  std::string& why) {
  const Addresses all = resolve(host.c_str(), port, 0, why);
  for (const addrinfo* at = all.get(); at != nullptr; at = at->ai_next) {
    Socket out(::socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    int error = out.is_open() && ::connect(out.get(), at->ai_addr, at->ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS) error = finish_connecting(out, timeout);
    if (error == 0 && is_own_echo(out)) error = ECONNREFUSED;
    if (error == 0) {
      set_options(out);
      return out;
    }
    why = text_of_errno(error);
  }
  return Socket();
}

std::string text_of(const Address& address) {
  const bool v6 = address.host.find(':') != std::string::npos;
  return v6 ? cat("[", address.host, "]:", address.port) : cat(address.host, ":", address.port);
}

Address far_end(const Socket& socket) {
  return address_of(::getpeername, socket);
}

Address near_end(const Socket& socket) {
  return address_of(::getsockname, socket);
}

Address own_end(const Socket& listener) {
  Address out = near_end(listener);
  if (out.host == "0.0.0.0") out.host = "127.0.0.1";
  if (out.host == "::") out.host = "::1";
  return out;
}

Waker::Waker() : event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!event_.is_open())
    throw CommunicationError(cat("the system gives no event: ", text_of_errno(errno)));
}

void Waker::wake() const {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(event_.get(), &one, sizeof one);
}

void Waker::drain() const {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(event_.get(), &count, sizeof count);
}

}  // namespace fovea::dist
