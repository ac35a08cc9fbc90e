// The way in: the server's part of the rendezvous, and what becomes of strangers.

#include <algorithm>
#include <cerrno>
#include <utility>

#include "core/log.h"
#include "core/text.h"
#include "dist/session_server.h"
#include "dist/token.h"

namespace fovea::dist {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kDeaf{200};           // where the system has no more descriptors
constexpr std::size_t kMostStrangers = 256;  // connections without a token at a time
constexpr int kAcceptedInARow = 64;
constexpr std::size_t kMostNames = 16;  // in a message
constexpr int kMostNotes = 20;          // refusals in the log, in a
constexpr std::chrono::minutes kNotes{1};

std::string text_of(milliseconds time) {
  return time.count() % 1000 == 0 ? cat(time.count() / 1000, " s") : cat(time.count(), " ms");
}

}  // namespace

void SessionServer::accept_some() {
  for (int i = 0; i < kAcceptedInARow; ++i) {
    Socket socket = accept_from(listener_);
    if (!socket.is_open()) {
      const bool none_left = errno == EAGAIN || errno == EWOULDBLOCK;
      if (!none_left && errno != EINTR && errno != ECONNABORTED) deaf_until_ = Clock::now() + kDeaf;
      return;
    }
    make_room();
    Connection& c = connections_.emplace_back();
    c.from = text_of(far_end(socket));
    c.channel = Channel(std::move(socket));
    c.since = Clock::now();
  }
}

// The oldest stranger goes: a rank shows its token at once.
void SessionServer::make_room() {
  std::size_t strangers = 0;
  Connection* oldest = nullptr;
  for (Connection& c : connections_) {
    if (c.rank >= 0 || c.closing) continue;
    ++strangers;
    if (oldest == nullptr) oldest = &c;
  }
  if (strangers >= kMostStrangers) refuse(*oldest, "too many have shown no token");
}

void SessionServer::greet(Connection& from, BodyReader& body) {
  const std::string token = body.text();
  const std::uint64_t rank = body.number(), size = body.number();
  from.peer = {static_cast<int>(rank), body.text(), 0};
  from.peer.pid = static_cast<long>(body.number());
  const auto code = static_cast<ExitCode>(body.number());
  const std::string why = body.text(), command = body.text();
  if (!body.good()) return refuse(from, "its greeting is too short");
  if (!is_same_secret(token, token_)) return refuse(from, "its token is of another run");
  if (ended_ && (vigil_ || !verdict_)) return refuse(from, "this run is ending");
  if (size != static_cast<std::uint64_t>(size_) || rank >= size) {
    return refuse(from, cat("it says that it is rank ", rank, " of ", size, ", but the run has ",
                            size_, " ranks"));
  }
  if (ended_) {
    tell(from);
    count_told_ = static_cast<int>(told_.size());
    from.closing = true;
    return;
  }
  Connection*& place = ranks_[rank];
  if (place != nullptr) return refuse(from, cat(name_of(place->peer), " is here already"));
  if (vigil_) return refuse(from, cat("rank ", rank, " was here already"));
  place = &from;
  from.rank = static_cast<int>(rank);
  if (command != options_.command && !command.empty() && !options_.command.empty()) {
    return end_all({from.rank, from.rank, ExitCode::usage,
                    cat(name_of(from.peer), " was started as '", command, "', but rank 0 as '",
                        options_.command, "': all ranks need the same command")});
  }
  if (code != ExitCode::ok)
    return end_all({from.rank, from.rank, code, cat(name_of(from.peer), " ended: ", why)},
                   from.rank);
  if (std::count(ranks_.begin(), ranks_.end(), nullptr) == 0) welcome_all();
}

void SessionServer::refuse(Connection& stranger, const std::string& why) {
  const auto now = Clock::now();
  if (now - notes_since_ > kNotes) {
    notes_since_ = now;
    notes_ = 0;
  }
  if (++notes_ <= kMostNotes) {
    log::warn(cat("rendezvous: a connection from ", stranger.from, " is refused: ", why,
                  notes_ == kMostNotes ? " (more of them in this minute are not logged)" : ""));
  }
  post(stranger, Frame::refused, Body().add(why));
  stranger.closing = true;
}

void SessionServer::welcome_all() {
  std::vector<Peer> peers;
  // Where other machines reach this one, where there are any.
  std::string address;
  for (const Connection* c : ranks_) {
    peers.push_back(c->peer);
    const std::string near = near_end(c->channel.socket()).host;
    if (address.empty() || is_loopback(address)) address = near;
  }
  Body welcome;
  welcome.add(launch_id_).add(address);
  for (const Peer& peer : peers)
    welcome.add(peer.host).add(static_cast<std::uint64_t>(peer.pid));
  vigil_.emplace(std::move(peers), options_.lost_after, Clock::now());
  for (Connection* c : ranks_)
    post(*c, Frame::welcome, welcome);
}

void SessionServer::watch_strangers(Clock::time_point now) {
  for (Connection& c : connections_) {
    if (c.rank >= 0 || now - c.since <= options_.greeting) continue;
    if (!c.closing)
      refuse(c, cat("it showed no token within ", text_of(options_.greeting)));
    else if (now - c.since > 2 * options_.greeting)
      c.channel.close();  // it does not even read why
  }
}

std::string SessionServer::missing(milliseconds after) const {
  std::vector<std::string> out;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (ranks_[rank] == nullptr) out.push_back(cat(rank));
  }
  const bool one = out.size() == 1;
  if (out.size() > kMostNames) {
    const std::size_t more = out.size() - kMostNames;
    out.resize(kMostNames);
    out.push_back(cat("and ", more, " more"));
  }
  return cat("rendezvous at ", where_, ": after ", text_of(after), one ? " rank " : " ranks ",
             join(out, ", "), " of ", size_, one ? " is" : " are", " not here");
}

// -1: more than one.
int SessionServer::only_missing() const {
  if (std::count(ranks_.begin(), ranks_.end(), nullptr) != 1) return -1;
  return static_cast<int>(std::find(ranks_.begin(), ranks_.end(), nullptr) - ranks_.begin());
}

}  // namespace fovea::dist
