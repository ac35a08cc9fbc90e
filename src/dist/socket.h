#pragma once
// TCP sockets over IPv4 and IPv6: non-blocking, without delay, kept alive, closed on exec.

#include <chrono>
#include <string>
#include <utility>

namespace fovea::dist {

// A file descriptor that is closed in the end.
class Socket {
 public:
  explicit Socket(int descriptor = -1) : descriptor_(descriptor) {}
  ~Socket() { close(); }
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  int get() const { return descriptor_; }
  bool is_open() const { return descriptor_ >= 0; }
  void close();

 private:
  int descriptor_;
};

// Listens on the port of `host`, an address of this machine; `everywhere`: on all of its addresses,
// for other machines. Throws CommunicationError.
Socket listen_on(const std::string& host, int port, bool everywhere);
// A listening socket that was inherited, made like ours.
Socket listen_on(int descriptor);
// The next connection that waits, or none.
Socket accept_from(const Socket& listener);
// A connection, or none with the reason in `why` after that time.
Socket connect_to(const std::string& host, int port, std::chrono::milliseconds timeout,
                  std::string& why);

struct Address {
  std::string host;  // a number
  int port = 0;
};
std::string text_of(const Address& address);  // "192.168.0.7:41234", "[::1]:80"
Address far_end(const Socket& socket);
Address near_end(const Socket& socket);
// Where this very process reaches its own listening socket.
Address own_end(const Socket& listener);

// A socket that becomes readable when wake() was called, until drain().
class Waker {
 public:
  Waker();  // Throws CommunicationError
  int descriptor() const { return event_.get(); }
  void wake() const;
  void drain() const;

 private:
  Socket event_;
};

}  // namespace fovea::dist
