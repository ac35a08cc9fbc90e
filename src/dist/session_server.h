#pragma once
// The one place where the ranks of a run meet: a thread of rank 0. It lets nobody in without the
// token, keeps the store, gathers, and watches who is alive.

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/error.h"
#include "dist/session.h"
#include "dist/socket.h"
#include "dist/vigil.h"
#include "dist/wire.h"

namespace fovea::dist {

class SessionServer {
 public:
  // Takes the listening socket. Starts at once.
  SessionServer(Socket listener, std::string token, int size, const SessionOptions& options);
  // Sends what is still to be sent, for a second at most.
  ~SessionServer();
  SessionServer(const SessionServer&) = delete;
  SessionServer& operator=(const SessionServer&) = delete;

 private:
  using Clock = std::chrono::steady_clock;

  struct Connection {
    Channel channel;
    std::string from;
    Clock::time_point since;
    int rank = -1;  // nobody yet
    Peer peer;
    bool closing = false;  // as soon as all is sent
  };
  // A rank's own word that it cannot go on for the others' sake.
  struct Complaint {
    Clock::time_point at;
    int rank = 0;
    ExitCode code = ExitCode::communication;
    std::string message;
  };

  void run();
  void wait_for_network(std::vector<int>& ready);
  void accept_some();
  void make_room();
  void receive(Connection& from);
  void handle(Connection& from, const ReceivedFrame& frame);
  void post(Connection& to, Frame type, const Body& body);
  void close_finished();

  void greet(Connection& from, BodyReader& body);
  void refuse(Connection& stranger, const std::string& why);
  void welcome_all();
  void lose(Connection& from, const std::string& why);

  void note_beat(const Connection& from, BodyReader& body);
  void answer(const std::string& key);
  void gather(const Connection& from, BodyReader& body);
  void leave(const Connection& from);
  void complain(Connection& from, BodyReader& body);

  void watch();
  void watch_strangers(Clock::time_point now);
  void beat(Clock::time_point now);
  void end_all(ExitCode code, const std::string& message, int but);
  std::string missing() const;

  Socket listener_;
  Waker waker_;
  std::string token_;
  int size_;
  SessionOptions options_;
  std::chrono::milliseconds look_;  // time between two looks at who is alive
  std::uint64_t launch_id_;
  std::list<Connection> connections_;
  std::vector<Connection*> ranks_;  // null: not here
  std::optional<Vigil> vigil_;      // once all are here
  bool ended_ = false;
  Clock::time_point started_, beaten_, deaf_until_;
  Clock::time_point notes_since_;
  int notes_ = 0;
  std::map<std::string, std::string> store_;
  std::map<std::string, std::vector<int>> askers_;  // of keys that nobody has set yet
  std::uint64_t gatherings_ = 0;
  std::map<int, std::string> gathering_;  // of this round, by rank
  std::vector<char> left_;
  std::optional<Complaint> complaint_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace fovea::dist
