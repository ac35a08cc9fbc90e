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

constexpr milliseconds kLook{100}, kPause{10};
constexpr milliseconds kWorthSaying{5000};  // of waiting for ranks
constexpr milliseconds kLastWords{1000};    // to send what is left at the end
// A rank that is lost breaks the others' connections to it, and their complaints may come first.
constexpr milliseconds kComplaint{1000};
constexpr std::string_view kWhatToDo =
    ": it takes every rank, started with this address (FOVEA_RENDEZVOUS, or MASTER_ADDR and "
    "MASTER_PORT) and token; one that ended says why in its own output. "
    "distributed.join_timeout is how long all wait";

}  // namespace

SessionServer::SessionServer(Socket listener, std::string where, std::string token, int size,
                             const SessionOptions& options, std::function<Place()> own_place,
                             std::optional<Verdict> over)
    : listener_(std::move(listener)),
      where_(std::move(where)),
      token_(std::move(token)),
      size_(size),
      options_(options),
      own_place_(std::move(own_place)),
      look_(std::clamp(options.lost_after / 8, milliseconds(1), kLook)),
      pace_(pace_of_words(size)),
      launch_id_(random_number()),
      ranks_(static_cast<std::size_t>(size), nullptr),
      ended_(over.has_value()),
      verdict_(std::move(over)),
      started_(Clock::now()),
      beaten_(started_),
      deaf_until_(started_),
      notes_since_(started_),
      left_(static_cast<std::size_t>(size), 0) {
  if (ended_) {
    told_.insert(0);  // says it
    count_told_ = 1;
  }
  thread_ = std::thread([this] { run(); });
}

SessionServer::~SessionServer() {
  stopping_ = true;
  waker_.wake();
  thread_.join();
}

void SessionServer::tell_the_late(milliseconds most, const std::function<bool()>& stop) const {
  const auto until = Clock::now() + most;
  while (count_told_ < size_ && Clock::now() < until && !(stop && stop()))
    std::this_thread::sleep_for(kPause);
}

void SessionServer::run() {
  std::vector<int> ready;
  std::optional<Clock::time_point> stop_at;
  while (true) {
    const bool stopping = stopping_;  // before looking: what came until then is still heard
    wait_for_network(ready);
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
  const milliseconds wait = moved_ && vigil_ ? std::min(pace_, look_) : look_;
  if (::poll(polled.data(), polled.size(), static_cast<int>(wait.count())) < 0) {
    for (pollfd& p : polled)
      p.revents = 0;
  }
  if (polled.front().revents != 0) waker_.drain();
  ready.clear();
  for (const pollfd& p : polled)
    ready.push_back(p.revents);
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
  if (!vigil_ && frame.type != Frame::fail)
    throw CommunicationError("a frame before all ranks were here");
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

// The connection has ended, or what came over it is wrong.
void SessionServer::lose(Connection& from, const std::string& why) {
  if (from.rank < 0) return refuse(from, why.empty() ? "it went away without a token" : why);
  const bool expected = ended_ || left_[static_cast<std::size_t>(from.rank)] != 0;
  if (complaint_ && complaint_->verdict.culprit == from.rank) {
    end_all(complaint_->verdict, from.rank);
  } else if (!expected) {
    if (from.rank == 0) note_own_place(Clock::now());
    const std::string what = !vigil_ ? cat(name_of(from.peer), " died before all ranks were here")
                                     : vigil_->died(from.rank);
    end_all({0, from.rank, ExitCode::communication,
             why.empty() ? what : cat(name_of(from.peer), " sent something wrong: ", why)},
            from.rank);
  }
  from.channel.close();
}

void SessionServer::note_beat(const Connection& from, BodyReader& body) {
  const Place said = read_place(body), place = from.rank == 0 ? own_place_() : said;
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
  Verdict verdict{from.rank, from.rank, static_cast<ExitCode>(body.number()), {}};
  verdict.message = cat(name_of(from.peer), " ended: ", body.text());
  if (!body.good()) return;
  if (ended_) {
    post(from, Frame::failing, {});
  } else if (vigil_ && verdict.code == ExitCode::communication) {
    if (!complaint_) complaint_ = {Clock::now(), std::move(verdict)};
  } else {
    end_all(verdict, from.rank);
  }
}

void SessionServer::watch() {
  const Clock::time_point now = Clock::now();
  watch_strangers(now);
  if (!vigil_) {
    if (!ended_) wait_for_ranks(now);
    return;
  }
  note_own_place(now);
  beat(now);
  if (ended_) return;
  if (const auto lost = vigil_->look(now)) {
    end_all({0, lost->rank, ExitCode::communication, lost->message});
  } else if (complaint_ && now - complaint_->at >= kComplaint) {
    end_all(complaint_->verdict, complaint_->verdict.culprit);
  }
}

void SessionServer::wait_for_ranks(Clock::time_point now) {
  if (now - started_ >= options_.join_timeout) {
    end_all({0, only_missing(), ExitCode::communication,
             cat(missing(options_.join_timeout), kWhatToDo)});
    count_told_ = size_;  // the others were waited for long enough
  } else if (now - started_ >= kWorthSaying && !std::exchange(said_who_is_missing_, true)) {
    log::info(cat(missing(kWorthSaying), " yet"));
  }
}

// Of the process itself nobody need tell; how much it computes its beats say.
void SessionServer::note_own_place(Clock::time_point now) {
  if (vigil_) vigil_->note(0, own_place_(), 0, now);
}

void SessionServer::beat(Clock::time_point now) {
  if (now - beaten_ < (moved_ ? std::min(pace_, options_.beat) : options_.beat)) return;
  moved_ = false;
  note_own_place(now);
  beaten_ = now;
  Body body;
  write(body, vigil_->place(0));
  for (Connection* c : ranks_) {
    if (c != nullptr && !c->channel.has_unsent()) post(*c, Frame::beat, body);
  }
}

// `but`: the rank that says so itself. The connection of rank 0's own process comes last: it may
// end the process, and this thread with it, as soon as it hears. A rank that is lost is told too,
// in case that it wakes up.
void SessionServer::end_all(const Verdict& verdict, int but) {
  if (std::exchange(ended_, true)) return;
  verdict_ = verdict;
  const auto until = Clock::now() + kLastWords;
  std::vector<pollfd> unsent;
  for (Connection* c : ranks_) {
    if (c != nullptr && c->rank != but && c->rank != 0) tell(*c);
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
  if (but >= 0) told_.insert(but);
  if (Connection* const failed = but < 0 ? nullptr : ranks_[static_cast<std::size_t>(but)])
    post(*failed, Frame::failing, {});
  if (ranks_.front() != nullptr && but != 0) tell(*ranks_.front());
  count_told_ = static_cast<int>(told_.size());
}

// Why the run has ended.
void SessionServer::tell(Connection& to) {
  post(to, Frame::end,
       Body()
           .add(static_cast<std::uint64_t>(verdict_->code))
           .add(static_cast<std::uint64_t>(verdict_->culprit))
           .add(verdict_->message));
  told_.insert(static_cast<int>(to.peer.rank));
}

}  // namespace fovea::dist
