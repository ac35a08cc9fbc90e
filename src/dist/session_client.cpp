#include "dist/session_client.h"

#include <algorithm>
#include <condition_variable>
#include <ctime>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include "core/log.h"
#include "core/text.h"
#include "dist/rendezvous.h"
#include "dist/session_server.h"
#include "dist/token.h"
#include "dist/verdict.h"
#include "dist/vigil.h"
#include "dist/wire.h"

namespace fovea::dist {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kLook{100};
constexpr milliseconds kFailing{4000};  // to tell the others why
constexpr milliseconds kLate{5000};     // for ranks that come to a run which ended before it began
constexpr milliseconds kLateForStop{2000};  // the same, where a stop was asked for

// What one thread has computed, whatever the others of its process do.
class ThreadClock {
 public:
  ThreadClock() : known_(::pthread_getcpuclockid(::pthread_self(), &clock_) == 0) {}
  // Seconds; 0 when the thread has ended.
  double seconds() const {
    timespec now{};
    if (!known_ || ::clock_gettime(clock_, &now) != 0) return 0;
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
  }

 private:
  clockid_t clock_{};
  bool known_;
};

Socket listener_of(const World& world) {
  return world.listener >= 0 ? listen_on(world.listener)
                             : listen_on(world.host, world.port, world.local_size < world.size);
}

[[noreturn]] void end_process(ExitCode code, const std::string& message) {
  log::error(message);
  log::flush();
  ::_exit(static_cast<int>(code));
}

class TcpSession final : public Session {
 public:
  TcpSession(const World& world, const SessionOptions& options)
      : rank_(world.rank),
        verdict_to_(world.verdict),
        options_(options),
        look_(std::clamp(options.lost_after / 8, milliseconds(1), kLook)),
        pace_(pace_of_words(world.size)) {
    if (!options_.on_failure) options_.on_failure = end_process;
    Welcome welcome = met(world);
    channel_ = std::move(welcome.channel);
    launch_id_ = welcome.launch_id;
    address_ = std::move(welcome.local_address);
    peers_ = std::move(welcome.peers);
    thread_ = std::thread([this] { run(); });
  }

  ~TcpSession() override {
    closing_ = true;
    waker_.wake();
    thread_.join();
    channel_.close();
  }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(peers_.size()); }
  const std::vector<Peer>& peers() const override { return peers_; }
  std::uint64_t launch_id() const override { return launch_id_; }
  std::string local_address() const override { return address_; }

  void set(const std::string& key, std::string_view value) override {
    send(Frame::set, Body().add(key).add(value));
  }

  std::string get(const std::string& key) override {
    const Waiting waiting(*this);
    send(Frame::get, Body().add(key));
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return gone_ || values_.contains(key); });
    const auto value = values_.find(key);
    if (value == values_.end()) throw CommunicationError(why_gone_);
    return std::move(values_.extract(value).mapped());
  }

  std::vector<std::string> gather(std::string_view mine) override {
    if (!waiting()) count_collective();
    const Waiting waiting(*this);
    send(Frame::gather, Body().add(gatherings_++).add(mine));
    const std::string answer = wait_for(Frame::gathered);
    BodyReader body(answer);
    std::vector<std::string> out(peers_.size());
    for (std::string& bytes : out)
      bytes = body.text();
    FOVEA_ASSERT(body.good());
    return out;
  }

  void leave() override {
    const Waiting waiting(*this);
    send(Frame::leave, {});
    wait_for(Frame::left);
  }

  void fail(ExitCode code, const std::string& message) noexcept override {
    // A communication error may be a lost rank's, whom the server knows better.
    if (code != ExitCode::communication) {
      quiet_ = true;
      blame(rank_, code, message);
    }
    try {
      send(Frame::fail, Body().add(static_cast<std::uint64_t>(code)).add(message));
    } catch (const Error&) {
      return;  // lost meanwhile: they hear of that
    }
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kFailing, [&] { return gone_ || answers_.contains(Frame::failing); });
    quiet_ = true;
    blame(rank_, code, message);
  }

 protected:
  void on_move() noexcept override {
    if (server_) server_->own_move();
    if (!moved_.exchange(true)) waker_.wake();
  }

 private:
  // Beside enter_collective(): inside of this class, in any thread.
  class Waiting {
   public:
    explicit Waiting(TcpSession& session) : session_(session) { ++session_.waits_; }
    ~Waiting() { --session_.waits_; }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    TcpSession& session_;
  };

  // The way in. Whoever is why there is none, the launcher hears of it.
  Welcome met(const World& world) {
    std::string token = world.token;
    Address server{world.host, world.port};
    try {
      if (rank_ == 0) {
        if (token.empty()) token = make_token(options_.folder);
        Socket listener = listener_of(world);
        server = own_end(listener);
        server_.emplace(std::move(listener), text_of(Address{world.host, world.port}), token,
                        world.size, options_, [this] { return place(); });
      }
      return enter(world, options_, server, std::move(token));
    } catch (const NotJoined& e) {
      const bool stopped = e.code() == ExitCode::stopped;
      if (!stopped) blame(e.culprit, e.code(), e.what(), true);
      if (server_ && stopped) server_->tell_the_late(kLateForStop);
      if (server_ && !stopped) server_->tell_the_late(kLate, options_.stop);
      throw;
    } catch (const Error& e) {
      blame(rank_, e.code(), e.what(), true);
      throw;
    }
  }

  // To the launcher, once.
  void blame(int culprit, ExitCode code, const std::string& message,
             bool before_start = false) noexcept {
    if (!blamed_.exchange(true))
      send_verdict(verdict_to_, {rank_, culprit, code, message, before_start});
  }

  Place place() const { return {phase(), step(), collectives(), waiting() || waits_ > 0}; }

  void send(Frame type, const Body& body) {
    if (body.bytes().size() > kLargeFrame) {
      throw CommunicationError(cat("a message of ", body.bytes().size(),
                                   " bytes to the other ranks, but at most ", kLargeFrame));
    }
    {
      const std::lock_guard lock(mutex_);
      if (gone_) throw CommunicationError(why_gone_);
      outbox_.emplace_back(type, body.bytes());
    }
    waker_.wake();
  }

  std::string wait_for(Frame type) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return gone_ || answers_.contains(type); });
    const auto answer = answers_.find(type);
    if (answer == answers_.end()) throw CommunicationError(why_gone_);
    return std::move(answers_.extract(answer).mapped());
  }

  // The thread: all of the network, signs of life both ways, answers for the other threads.
  void run() {
    auto looked = Clock::now();
    heard_ = beaten_ = looked;
    beat(looked);
    take_all();  // what came behind the welcome
    while (!closing_) {
      post_outbox();
      wait_for_network();
      const auto now = Clock::now();
      // This process was suspended, perhaps all others with it.
      if (now - std::exchange(looked, now) > options_.lost_after / 2) heard_ = now;
      if (now - beaten_ >= (moved_ ? std::min(pace_, options_.beat) : options_.beat)) beat(now);
      if (!lost_ && now - heard_ > options_.lost_after) give_up_on_server();
    }
    if (moved_ && !lost_) beat(Clock::now());  // where this rank stood last
    channel_.flush();
  }

  void post_outbox() {
    std::vector<std::pair<Frame, std::string>> posted;
    {
      const std::lock_guard lock(mutex_);
      posted.swap(outbox_);
    }
    for (const auto& [type, body] : posted)
      channel_.post(type, body);
    channel_.flush();
  }

  void wait_for_network() {
    const int events = POLLIN | (channel_.has_unsent() ? POLLOUT : 0);
    pollfd polled[2] = {{lost_ ? -1 : channel_.socket().get(), static_cast<short>(events), 0},
                        {waker_.descriptor(), POLLIN, 0}};
    const milliseconds wait = moved_ ? std::min(pace_, look_) : look_;
    if (::poll(polled, 2, static_cast<int>(wait.count())) <= 0) return;
    if (polled[1].revents != 0) waker_.drain();
    if (polled[0].revents == 0) return;
    const bool open = channel_.receive();
    heard_ = Clock::now();
    take_all();
    if (!open) end(ExitCode::communication, 0, server_died());
  }

  void take_all() {
    try {
      while (const auto frame = channel_.take(kLargeFrame))
        take(*frame);
    } catch (const CommunicationError& e) {
      end(ExitCode::communication, 0,
          cat(name_of(peers_.front()), " sent something wrong: ", e.what()));
    }
  }

  void beat(Clock::time_point now) {
    const double computed = clock_.seconds();
    const double passed = std::chrono::duration<double>(now - beaten_).count();
    const double busy = passed > 0 ? std::max(0.0, (computed - computed_) / passed) : 0;
    beaten_ = now;
    computed_ = computed;
    if (channel_.has_unsent()) return;  // which is a sign of life, too
    Body body;
    moved_ = false;
    write(body, place());
    body.add(static_cast<std::uint64_t>(busy * 1000));
    channel_.post(Frame::beat, body.bytes());
  }

  void take(const ReceivedFrame& frame) {
    BodyReader body(frame.body);
    if (frame.type == Frame::beat) {
      of_server_ = read_place(body);
    } else if (frame.type == Frame::end) {
      const auto code = static_cast<ExitCode>(body.number());
      const auto culprit = static_cast<int>(body.number());
      end(code, culprit, body.text());
    } else {
      if (frame.type == Frame::left || frame.type == Frame::failing) quiet_ = true;
      const std::lock_guard lock(mutex_);
      if (frame.type == Frame::value) {
        std::string key = body.text();
        values_.emplace(std::move(key), body.text());
      } else {
        answers_[frame.type] = frame.body;
      }
      changed_.notify_all();
    }
  }

  std::string server_died() const {
    return cat(name_of(peers_.front()), " died ", text_of(of_server_));
  }

  void give_up_on_server() {
    const std::string message = cat(
        name_of(peers_.front()), " hangs ", text_of(of_server_), ": nothing was heard of it for ",
        std::chrono::duration_cast<std::chrono::seconds>(options_.lost_after).count(), " s");
    // For its own log, in case that it wakes up.
    channel_.post(
        Frame::fail,
        Body().add(static_cast<std::uint64_t>(ExitCode::communication)).add(message).bytes());
    channel_.flush();
    end(ExitCode::communication, 0, message);
  }

  void end(ExitCode code, int culprit, const std::string& message) {
    if (std::exchange(lost_, true)) return;
    if (!quiet_.exchange(true)) {
      blame(culprit, code, message);
      options_.on_failure(code, message);
    }
    const std::lock_guard lock(mutex_);
    gone_ = true;
    why_gone_ = message;
    changed_.notify_all();
  }

  const int rank_;
  const int verdict_to_;  // the launcher's pipe
  SessionOptions options_;
  const milliseconds look_, pace_;
  std::uint64_t launch_id_ = 0;
  std::string address_;
  std::vector<Peer> peers_;
  std::atomic<int> waits_{0};
  std::uint64_t gatherings_ = 0;
  std::atomic<bool> closing_{false}, quiet_{false};  // quiet: a loss is nothing to end for
  std::atomic<bool> moved_{false};                   // since the last beat
  std::atomic<bool> blamed_{false};
  Waker waker_;
  std::optional<SessionServer> server_;  // of rank 0; asks for its place

  std::mutex mutex_;  // of these
  std::condition_variable changed_;
  std::vector<std::pair<Frame, std::string>> outbox_;
  std::map<Frame, std::string> answers_;
  std::multimap<std::string, std::string> values_;
  bool gone_ = false;
  std::string why_gone_;

  Channel channel_;  // this and the rest: the thread's
  Place of_server_;
  ThreadClock clock_;
  double computed_ = 0;
  Clock::time_point heard_, beaten_;
  bool lost_ = false;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<Session> join_over_tcp(const World& world, const SessionOptions& options) {
  return std::make_unique<TcpSession>(world, options);
}

void decline_over_tcp(const World& world, const SessionOptions& options, ExitCode code,
                      const std::string& message) noexcept {
  send_verdict(world.verdict, {world.rank, world.rank, code, message, true});
  SessionOptions brief = options;
  brief.join_timeout = kLate;
  // Only a folder that is known can hold the token.
  if (world.token.empty() && options.folder.empty()) return;
  try {
    if (world.rank > 0) {
      say_declined(world, brief, {world.host, world.port}, world.token, code, message);
      return;
    }
    // Not a new one: the folder may be another run's, which is why this rank declines. The others
    // read what is there.
    std::string token = world.token.empty() ? read_token(options.folder) : world.token;
    if (token.empty()) return;
    const std::string name = name_of({0, own_host_name(), ::getpid()});
    const SessionServer server(listener_of(world), text_of(Address{world.host, world.port}),
                               std::move(token), world.size, brief, {},
                               Verdict{0, 0, code, cat(name, " ended: ", message)});
    server.tell_the_late(kLate, options.stop);
  } catch (const std::exception&) {
    // Nobody can be told: they will find nobody.
  }
}

}  // namespace fovea::dist
