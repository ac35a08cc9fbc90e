#include "dist/session_server.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <poll.h>

#include "core/log.h"
#include "core/text.h"
#include "dist/token.h"

namespace fovea::dist {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLook{100};
constexpr milliseconds kLastWords{1000};     // to send what is left at the end
constexpr milliseconds kDeaf{200};           // where the system has no more descriptors
constexpr std::size_t kMostStrangers = 256;  // connections without a token at a time
constexpr int kAcceptedInARow = 64;
constexpr int kMostNotes = 20;  // refusals in the log, in a
constexpr std::chrono::minutes kNotes{1};
// A rank that is lost breaks the others' connections to it, and their complaints may come first.
constexpr milliseconds kComplaint{1000};

std::string text_of(milliseconds time) {
  return time.count() % 1000 == 0 ? cat(time.count() / 1000, " s") : cat(time.count(), " ms");
}

}  // namespace

SessionServer::SessionServer(Socket listener, std::string token, int size,
                             const SessionOptions& options)
    : listener_(std::move(listener)),
      token_(std::move(token)),
      size_(size),
      options_(options),
      look_(std::clamp(options.lost_after / 8, milliseconds(1), kLook)),
      launch_id_(random_number()),
      ranks_(static_cast<std::size_t>(size), nullptr),
      started_(Clock::now()),
      beaten_(started_),
      deaf_until_(started_),
      notes_since_(started_),
      left_(static_cast<std::size_t>(size), 0) {
  thread_ = std::thread([this] { run(); });
}

SessionServer::~SessionServer() {
  stopping_ = true;
  waker_.wake();
  thread_.join();
}

void SessionServer::run() {
  std::vector<int> ready;
  std::optional<Clock::time_point> stop_at;
  while (true) {
    wait_for_network(ready);
    const bool stopping = stopping_;
    if (stopping && !stop_at) stop_at = Clock::now() + kLastWords;
    std::size_t at = 2;
    for (Connection& c : connections_) {
      const int events = ready[at++];
      if ((events & (POLLOUT | POLLERR | POLLHUP)) != 0) c.channel.flush();
      if ((events & (POLLIN | POLLERR | POLLHUP)) != 0) receive(c);
    }
    if (!stopping && ready[1] != 0) accept_some();
    watch();
    close_finished();
    const bool silent = std::none_of(connections_.begin(), connections_.end(),
                                     [](const Connection& c) { return c.channel.has_unsent(); });
    if (stop_at && (silent || Clock::now() >= *stop_at)) return;
  }
}

// What poll() says of the waker, the listener and each connection.
void SessionServer::wait_for_network(std::vector<int>& ready) {
  const bool deaf = stopping_ || Clock::now() < deaf_until_;
  std::vector<pollfd> polled = {{waker_.descriptor(), POLLIN, 0},
                                {deaf ? -1 : listener_.get(), POLLIN, 0}};
  for (const Connection& c : connections_) {
    const int events = (c.closing ? 0 : POLLIN) | (c.channel.has_unsent() ? POLLOUT : 0);
    polled.push_back({c.channel.socket().get(), static_cast<short>(events), 0});
  }
  if (::poll(polled.data(), polled.size(), static_cast<int>(look_.count())) < 0) {
    for (pollfd& p : polled)
      p.revents = 0;
  }
  if (polled.front().revents != 0) waker_.drain();
  ready.clear();
  for (const pollfd& p : polled)
    ready.push_back(p.revents);
}

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

void SessionServer::receive(Connection& from) {
  if (from.closing || !from.channel.is_open()) return;
  try {
    const bool open = from.channel.receive();
    if (open && from.rank >= 0 && vigil_) vigil_->hear(from.rank, Clock::now());
    while (!from.closing) {
      const auto frame = from.channel.take(from.rank >= 0 ? kLargeFrame : kSmallFrame);
      if (!frame) break;
      handle(from, *frame);
    }
    if (!open && !from.closing) lose(from, "");
  } catch (const CommunicationError& e) {
    lose(from, e.what());
  }
}

void SessionServer::handle(Connection& from, const ReceivedFrame& frame) {
  BodyReader body(frame.body);
  if (from.rank < 0) {
    if (frame.type != Frame::hello) throw CommunicationError("a frame before the token");
    return greet(from, body);
  }
  if (!vigil_) throw CommunicationError("a frame before all ranks were here");
  switch (frame.type) {
    case Frame::beat:
      note_beat(from, body);
      break;
    case Frame::set: {
      const std::string key = body.text();
      store_[key] = body.text();
      answer(key);
      break;
    }
    case Frame::get: {
      const std::string key = body.text();
      askers_[key].push_back(from.rank);
      answer(key);
      break;
    }
    case Frame::gather:
      gather(from, body);
      break;
    case Frame::leave:
      leave(from);
      break;
    case Frame::fail:
      complain(from, body);
      break;
    default:
      throw CommunicationError("a frame that only rank 0 sends");
  }
  if (!body.good()) throw CommunicationError("a frame that is too short");
}

void SessionServer::post(Connection& to, Frame type, const Body& body) {
  to.channel.post(type, body.bytes());
  to.channel.flush();
}

void SessionServer::close_finished() {
  connections_.remove_if([&](Connection& c) {
    if (c.closing && !c.channel.has_unsent()) c.channel.close();
    if (c.channel.is_open()) return false;
    if (c.rank >= 0) ranks_[static_cast<std::size_t>(c.rank)] = nullptr;
    return true;
  });
}

void SessionServer::greet(Connection& from, BodyReader& body) {
  const std::string token = body.text();
  const std::uint64_t rank = body.number(), size = body.number();
  from.peer = {static_cast<int>(rank), body.text(), 0};
  from.peer.pid = static_cast<long>(body.number());
  if (!body.good()) return refuse(from, "its greeting is too short");
  if (!is_same_secret(token, token_)) return refuse(from, "its token is of another run");
  if (ended_) return refuse(from, "this run is ending");
  if (size != static_cast<std::uint64_t>(size_) || rank >= size) {
    return refuse(from, cat("it says that it is rank ", rank, " of ", size, ", but the run has ",
                            size_, " ranks"));
  }
  Connection*& place = ranks_[rank];
  if (place != nullptr) return refuse(from, cat(name_of(place->peer), " is here already"));
  if (vigil_) return refuse(from, cat("rank ", rank, " was here already"));
  place = &from;
  from.rank = static_cast<int>(rank);
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

// The connection has ended, or what came over it is wrong.
void SessionServer::lose(Connection& from, const std::string& why) {
  if (from.rank < 0) return refuse(from, why.empty() ? "it went away without a token" : why);
  const bool expected = ended_ || left_[static_cast<std::size_t>(from.rank)] != 0;
  if (complaint_ && complaint_->rank == from.rank) {
    end_all(complaint_->code, cat(name_of(from.peer), " ended: ", complaint_->message), from.rank);
  } else if (!expected) {
    const std::string what = !vigil_ ? cat(name_of(from.peer), " died before all ranks were here")
                                     : vigil_->died(from.rank);
    end_all(ExitCode::communication,
            why.empty() ? what : cat(name_of(from.peer), " sent something wrong: ", why),
            from.rank);
  }
  from.channel.close();
}

void SessionServer::note_beat(const Connection& from, BodyReader& body) {
  const Place place = read_place(body);
  const double busy = static_cast<double>(body.number()) / 1000;
  if (body.good()) vigil_->note(from.rank, place, busy, Clock::now());
}

void SessionServer::answer(const std::string& key) {
  const auto value = store_.find(key);
  const auto askers = askers_.find(key);
  if (value == store_.end() || askers == askers_.end()) return;
  for (const int rank : askers->second) {
    Connection* const to = ranks_[static_cast<std::size_t>(rank)];
    if (to != nullptr) post(*to, Frame::value, Body().add(key).add(value->second));
  }
  askers_.erase(askers);
}

void SessionServer::gather(const Connection& from, BodyReader& body) {
  if (body.number() != gatherings_ || gathering_.contains(from.rank))
    throw CommunicationError("its gatherings are not in order");
  gathering_[from.rank] = body.text();
  if (static_cast<int>(gathering_.size()) < size_) return;
  Body all;
  for (const auto& [rank, bytes] : gathering_)
    all.add(bytes);
  gathering_.clear();
  ++gatherings_;
  for (Connection* c : ranks_) {
    if (c != nullptr) post(*c, Frame::gathered, all);
  }
}

// Rank 0 hears of it last: its process may end then, and this thread with it.
void SessionServer::leave(const Connection& from) {
  left_[static_cast<std::size_t>(from.rank)] = 1;
  vigil_->dismiss(from.rank);
  if (ended_ || std::count(left_.begin(), left_.end(), 0) > 0) return;
  ended_ = true;
  for (std::size_t i = ranks_.size(); i-- > 0;) {
    if (ranks_[i] != nullptr) post(*ranks_[i], Frame::left, {});
  }
}

void SessionServer::complain(Connection& from, BodyReader& body) {
  Complaint now{Clock::now(), from.rank, static_cast<ExitCode>(body.number()), {}};
  now.message = body.text();
  if (!body.good()) return;
  if (!ended_ && now.code == ExitCode::communication) {
    if (!complaint_) complaint_ = now;
    return;
  }
  end_all(now.code, cat(name_of(from.peer), " ended: ", now.message), from.rank);
  post(from, Frame::failing, {});
}

void SessionServer::watch() {
  const Clock::time_point now = Clock::now();
  watch_strangers(now);
  if (!vigil_) {
    if (!ended_ && now - started_ >= options_.join_timeout) {
      end_all(ExitCode::communication,
              cat("rendezvous: after ", text_of(options_.join_timeout), " ", missing()), -1);
    }
    return;
  }
  beat(now);
  if (ended_) return;
  if (const auto lost = vigil_->look(now)) {
    end_all(ExitCode::communication, lost->message, -1);
  } else if (complaint_ && now - complaint_->at >= kComplaint) {
    Connection* const from = ranks_[static_cast<std::size_t>(complaint_->rank)];
    end_all(complaint_->code,
            cat(name_of(vigil_->peer(complaint_->rank)), " ended: ", complaint_->message),
            complaint_->rank);
    if (from != nullptr) post(*from, Frame::failing, {});
  }
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

void SessionServer::beat(Clock::time_point now) {
  if (now - beaten_ < options_.beat) return;
  beaten_ = now;
  Body body;
  write(body, vigil_->place(0));
  for (Connection* c : ranks_) {
    if (c != nullptr && !c->channel.has_unsent()) post(*c, Frame::beat, body);
  }
}

// The connection of rank 0's own process comes last: it may end the process, and this thread with
// it, as soon as it hears. A rank that is lost is told too, in case that it wakes up.
void SessionServer::end_all(ExitCode code, const std::string& message, int but) {
  if (std::exchange(ended_, true)) return;
  const Body body = Body().add(static_cast<std::uint64_t>(code)).add(message);
  const auto until = Clock::now() + kLastWords;
  std::vector<pollfd> unsent;
  for (Connection* c : ranks_) {
    if (c != nullptr && c->rank != but && c->rank != 0) post(*c, Frame::end, body);
  }
  do {
    unsent.clear();
    for (Connection* c : ranks_) {
      if (c == nullptr || c->rank == but || c->rank == 0) continue;
      c->channel.flush();
      if (c->channel.has_unsent()) unsent.push_back({c->channel.socket().get(), POLLOUT, 0});
    }
    if (unsent.empty()) break;
    ::poll(unsent.data(), unsent.size(), static_cast<int>(kLook.count()));
  } while (Clock::now() < until);
  if (ranks_.front() != nullptr && but != 0) post(*ranks_.front(), Frame::end, body);
}

std::string SessionServer::missing() const {
  std::vector<std::string> out;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (ranks_[rank] == nullptr) out.push_back(cat(rank));
  }
  const bool one = out.size() == 1;
  return cat(one ? "rank " : "ranks ", join(out, ", "), " of ", size_, one ? " is" : " are",
             " not here");
}

}  // namespace fovea::dist
