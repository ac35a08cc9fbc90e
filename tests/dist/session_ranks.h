#pragma once
// Ranks of a real session as threads of this process, with what happened to each.

#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/log.h"
#include "data/temp_folder.h"
#include "dist/session.h"

namespace fovea::test {

// A listening socket on a port of the system's choice, on 127.0.0.1.
class Listener {
 public:
  Listener() : descriptor_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    if (::bind(descriptor_, any, size) != 0 || ::listen(descriptor_, 512) != 0 ||
        ::getsockname(descriptor_, any, &size) != 0)
      throw std::runtime_error("no socket");
    port_ = ntohs(address.sin_port);
  }
  ~Listener() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  int port() const { return port_; }
  // For who closes it.
  int release() { return std::exchange(descriptor_, -1); }

 private:
  int descriptor_, port_ = 0;
};

// What on_failure was told, by another thread.
class Failure {
 public:
  void set(ExitCode code, const std::string& message) {
    const std::lock_guard lock(mutex_);
    code_ = code;
    message_ = message;
    ++calls_;
    changed_.notify_all();
  }
  // Waits for it.
  std::string message() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(60), [&] { return calls_ > 0; });
    return message_;
  }
  ExitCode code() const { return code_; }
  int calls() {
    const std::lock_guard lock(mutex_);
    return calls_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  ExitCode code_ = ExitCode::ok;
  std::string message_;
  int calls_ = 0;
};

inline dist::World world_of(int rank, int size, int port, const std::string& token = "secret") {
  dist::World world;
  world.rank = rank;
  world.size = size;
  world.local_rank = rank;
  world.local_size = size;
  world.launcher = "test";
  world.host = "127.0.0.1";
  world.port = port;
  world.token = token;
  return world;
}

inline dist::SessionOptions quick_options() {
  dist::SessionOptions options;
  options.join_timeout = std::chrono::seconds(60);
  options.beat = std::chrono::milliseconds(50);
  options.greeting = std::chrono::milliseconds(300);
  return options;
}

// Runs work(rank) in a thread each; what each one threw, or "".
inline std::vector<std::string> in_threads(int size, const std::function<void(int)>& work) {
  std::vector<std::string> errors(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back(
        [&, rank] { errors[static_cast<std::size_t>(rank)] = message_of([&] { work(rank); }); });
  }
  for (std::thread& thread : threads)
    thread.join();
  return errors;
}

// All ranks of one run.
class SessionRanks {
 public:
  explicit SessionRanks(int size, dist::SessionOptions options = quick_options(),
                        const std::function<void(int, dist::SessionOptions&)>& change = {})
      : failures(static_cast<std::size_t>(size)), sessions(static_cast<std::size_t>(size)) {
    Listener listener;
    port = listener.port();
    const int descriptor = listener.release();
    const auto errors = in_threads(size, [&](int rank) {
      const auto i = static_cast<std::size_t>(rank);
      dist::SessionOptions own = options;
      own.on_failure = [this, i](ExitCode code, const std::string& message) {
        failures[i].set(code, message);
      };
      if (change) change(rank, own);
      dist::World world = world_of(rank, size, port);
      if (rank == 0) world.listener = descriptor;
      sessions[i] = dist::Session::join(world, own);
    });
    for (const std::string& error : errors) {
      if (!error.empty()) throw std::runtime_error(error);
    }
  }

  dist::Session& operator[](int rank) { return *sessions[static_cast<std::size_t>(rank)]; }
  int size() const { return static_cast<int>(sessions.size()); }
  // How the others name a rank of this process.
  std::string name(int rank) {
    return dist::name_of((*this)[0].peers()[static_cast<std::size_t>(rank)]);
  }
  std::vector<std::string> each(const std::function<void(dist::Session&)>& work) {
    return in_threads(size(), [&](int rank) { work((*this)[rank]); });
  }
  void leave() {
    each([](dist::Session& session) { session.leave(); });
  }

  int port = 0;
  std::vector<Failure> failures;  // outlive the sessions, which may still tell of one
  std::vector<std::unique_ptr<dist::Session>> sessions;
};

// A connection of somebody who is no rank.
class Stranger {
 public:
  explicit Stranger(int port) : descriptor_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const timeval limit{30, 0};
    ::setsockopt(descriptor_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (::connect(descriptor_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
      throw std::runtime_error("nobody listens");
  }
  ~Stranger() { ::close(descriptor_); }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;

  bool say(std::string_view bytes) {
    return ::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(bytes.size());
  }
  // All that comes until the other end closes; nothing if it does not within half a minute.
  std::optional<std::string> answer() {
    std::string out;
    char buffer[4096];
    while (true) {
      const ssize_t n = ::recv(descriptor_, buffer, sizeof buffer, 0);
      if (n > 0) out.append(buffer, static_cast<std::size_t>(n));
      if (n == 0 || (n < 0 && errno == ECONNRESET)) return out;
      if (n < 0) return std::nullopt;
    }
  }

 private:
  int descriptor_;
};

}  // namespace fovea::test
