#pragma once
// The one place where the ranks of a run meet: a thread of rank 0. It lets nobody in without the
// token, keeps the store, gathers, and watches who is alive.

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "core/error.h"
#include "dist/session.h"
#include "dist/socket.h"
#include "dist/verdict.h"
#include "dist/vigil.h"
#include "dist/wire.h"

namespace fovea::dist {

class SessionServer {
 public:
  // Takes the listening socket; `where` is its address as the ranks were told. Starts at once.
  // own_place: where rank 0 stands, which this process knows by itself. over: the run has ended
  // before it began, and whoever comes is told why.
  SessionServer(Socket listener, std::string where, std::string token, int size,
                const SessionOptions& options, std::function<Place()> own_place,
                std::optional<Verdict> over = {});
  // Sends what is still to be sent, for a second at most.
  ~SessionServer();
  SessionServer(const SessionServer&) = delete;
  SessionServer& operator=(const SessionServer&) = delete;

  // Rank 0 stands somewhere else now. Any thread.
  void own_move() noexcept {
    if (!moved_.exchange(true)) waker_.wake();
  }
  // Where a run ended before all ranks were there: waits until all have heard of it, so long at
  // most, or until `stop` says so.
  void tell_the_late(std::chrono::milliseconds most, const std::function<bool()>& stop = {}) const;

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
    Verdict verdict;
  };

  void run();
  void wait_for_network(std::vector<int>& ready);
  void accept_some();
  void make_room();
  void receive(Connection& from);
  void handle(Connection& from, const ReceivedFrame& frame);
  void post(Connection& to, Frame type, const Body& body);
  void close_finished();

  // session_door.cpp
  void greet(Connection& from, BodyReader& body);
  void refuse(Connection& stranger, const std::string& why);
  void welcome_all();
  void watch_strangers(Clock::time_point now);
  std::string missing(std::chrono::milliseconds after) const;
  int only_missing() const;

  void lose(Connection& from, const std::string& why);

  void note_beat(const Connection& from, BodyReader& body);
  void answer(const std::string& key);
  void gather(const Connection& from, BodyReader& body);
  void leave(const Connection& from);
  void complain(Connection& from, BodyReader& body);

  void watch();
  void wait_for_ranks(Clock::time_point now);
  void note_own_place(Clock::time_point now);
  void beat(Clock::time_point now);
  void end_all(const Verdict& verdict, int but = -1);
  void tell(Connection& to);

  Socket listener_;
  const std::string where_;
  Waker waker_;
  std::string token_;
  int size_;
  SessionOptions options_;
  const std::function<Place()> own_place_;
  std::chrono::milliseconds look_;        // time between two looks at who is alive
  const std::chrono::milliseconds pace_;  // between two words of rank 0's place, if it moves
  std::uint64_t launch_id_;
  std::list<Connection> connections_;
  std::vector<Connection*> ranks_;  // null: not here
  std::optional<Vigil> vigil_;      // once all are here
  bool ended_ = false;
  std::optional<Verdict> verdict_;  // why it ended, if not in good order
  std::set<int> told_;              // who heard of it
  std::atomic<int> count_told_{0};
  Clock::time_point started_, beaten_, deaf_until_;
  bool said_who_is_missing_ = false;
  Clock::time_point notes_since_;
  int notes_ = 0;
  std::map<std::string, std::string> store_;
  std::map<std::string, std::vector<int>> askers_;  // of keys that nobody has set yet
  std::uint64_t gatherings_ = 0;
  std::map<int, std::string> gathering_;  // of this round, by rank
  std::vector<char> left_;
  std::optional<Complaint> complaint_;
  std::atomic<bool> stopping_{false}, moved_{false};
  std::thread thread_;
};

}  // namespace fovea::dist
