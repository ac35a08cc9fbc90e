#include "dist/rendezvous.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include <poll.h>
#include <unistd.h>

#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "dist/token.h"

namespace fovea::dist {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kRetry{200};
constexpr milliseconds kConnecting{5000};  // then once more: a lost packet
// Rank 0 says itself who is missing; so much longer it may take to.
constexpr milliseconds kItsTurn{6000};
constexpr milliseconds kFarewell{1000};     // for it to hear that this rank ends
constexpr milliseconds kWorthSaying{5000};  // of waiting for rank 0
constexpr std::string_view kOtherPort =
    "if another program has the port, choose one for all ranks: FOVEA_RENDEZVOUS=host:port";

class Entry {
 public:
  Entry(const World& world, const SessionOptions& options, const Address& server, std::string token)
      : world_(world),
        options_(options),
        server_(server),
        token_(std::move(token)),
        shared_(token_.empty()),
        started_(Clock::now()),
        deadline_(started_ + options.join_timeout) {}

  Welcome run() {
    do {
      if (has_token() && connect() && is_welcome()) return std::move(welcome_);
      if (is_stopped()) stop();
      say_why_once();
      std::this_thread::sleep_for(std::min(kRetry, left()));
    } while (left() > milliseconds(0));
    look_around();
    give_up();
  }

  void decline(ExitCode code, const std::string& message) {
    do {
      if (has_token() && connect(code, message)) return wait_for_farewell();
      std::this_thread::sleep_for(std::min(kRetry, left()));
    } while (left() > milliseconds(0) && !is_stopped());
  }

 private:
  milliseconds left() const {
    const auto out = std::chrono::duration_cast<milliseconds>(deadline_ - Clock::now());
    return std::max(out, milliseconds(0));
  }

  bool is_stopped() const { return options_.stop && options_.stop(); }

  bool has_token() {
    if (shared_) token_ = read_token(options_.folder);
    if (token_.empty()) {
      why_ = cat(token_path(options_.folder), ", which rank 0 writes, is not there. Ranks that ",
                 "do not share this folder need FOVEA_TOKEN, one secret for all");
    }
    return !token_.empty();
  }

  // Without a token nothing was tried. Whether anybody is there says more.
  void look_around() {
    if (!token_.empty()) return;
    std::string why;
    const bool open = connect_to(server_.host, server_.port, kConnecting, why).is_open();
    why_ = cat(open ? "somebody listens there" : nobody(why), "; ", why_);
  }

  static std::string nobody(const std::string& why) {
    return cat("nobody answers (", why,
               "): rank 0 is to listen there, so start it with this address (FOVEA_RENDEZVOUS, or "
               "MASTER_ADDR and MASTER_PORT), or see in its output why it ended");
  }

  // Of rank 0 its server says who is missing.
  void say_why_once() {
    if (world_.rank == 0 || said_why_ || Clock::now() - started_ < kWorthSaying) return;
    said_why_ = true;
    look_around();
    log::info(cat("waiting at ", text_of(server_), ": ", why_));
  }

  [[noreturn]] void give_up() const {
    throw NotJoined(ExitCode::communication, -1,
                    cat("rank ", world_.rank, " of ", world_.size, ": rendezvous at ",
                        text_of(server_), ": ", why_));
  }

  [[noreturn]] void stop() {
    constexpr const char* kWhy = "a signal asked for a stop before all ranks were there";
    if (welcome_.channel.is_open()) {
      const auto code = static_cast<std::uint64_t>(ExitCode::stopped);
      welcome_.channel.post(Frame::fail, Body().add(code).add(kWhy).bytes());
      wait_for_farewell();
    }
    throw NotJoined(ExitCode::stopped, world_.rank,
                    cat("rank ", world_.rank, " of ", world_.size, ": ", kWhy));
  }

  void wait_for_farewell() {
    const auto until = Clock::now() + kFarewell;
    // A welcome may come before the answer.
    while (const auto frame = answer(until)) {
      if (frame->type == Frame::failing || frame->type == Frame::end) return;
    }
  }

  // ok: to take part.
  bool connect(ExitCode code = ExitCode::ok, std::string_view message = {}) {
    std::string why;
    Socket socket =
        connect_to(server_.host, server_.port, std::clamp(left(), kRetry, kConnecting), why);
    if (!socket.is_open()) {
      why_ = nobody(why);
      return false;
    }
    welcome_.channel = Channel(std::move(socket));
    welcome_.channel.post(Frame::hello, Body()
                                            .add(token_)
                                            .add(static_cast<std::uint64_t>(world_.rank))
                                            .add(static_cast<std::uint64_t>(world_.size))
                                            .add(own_host_name())
                                            .add(static_cast<std::uint64_t>(::getpid()))
                                            .add(static_cast<std::uint64_t>(code))
                                            .add(message.substr(0, kSmallFrame / 2))
                                            .add(options_.command)
                                            .bytes());
    return true;
  }

  // Whether rank 0 answers well; throws if another attempt would end in the same way.
  bool is_welcome() {
    why_ =
        cat("somebody listens there, but does not say that all ranks are here: rank 0 waits for "
            "others, or ended; ",
            kOtherPort);
    std::optional<ReceivedFrame> frame;
    const auto until = deadline_ + kItsTurn;
    while (!(frame = answer(std::min(until, Clock::now() + kRetry)))) {
      if (is_stopped()) stop();
      say_why_once();
      if (!welcome_.channel.is_open() || Clock::now() >= until) return false;
    }
    BodyReader body(frame->body);
    if (frame->type == Frame::welcome) {
      read_welcome(body);
      if (body.good()) return true;
    } else if (frame->type == Frame::refused) {
      why_ = cat("rank 0 refuses this rank: ", body.text());
      // Rank 0 of an earlier start may still be there, while the file is not yet of this one.
      if (!shared_) give_up();
    } else if (frame->type == Frame::end) {
      const auto code = static_cast<ExitCode>(body.number());
      const auto culprit = static_cast<int>(body.number());
      throw NotJoined(code, culprit, body.text());
    }
    return false;
  }

  // The next frame; nothing if none comes in time, or ever: then the channel is closed.
  std::optional<ReceivedFrame> answer(Clock::time_point until) {
    Channel& channel = welcome_.channel;
    try {
      while (channel.is_open() && Clock::now() < until) {
        if (auto frame = channel.take(kLargeFrame)) return frame;
        channel.flush();
        const int events = POLLIN | (channel.has_unsent() ? POLLOUT : 0);
        pollfd polled{channel.socket().get(), static_cast<short>(events), 0};
        const auto wait = std::chrono::ceil<milliseconds>(until - Clock::now()).count();
        if (::poll(&polled, 1, static_cast<int>(std::max<std::int64_t>(0, wait))) <= 0) continue;
        if (channel.receive()) continue;
        if (auto frame = channel.take(kLargeFrame)) return frame;
        why_ = cat("who listens there closed the connection before all ranks were here: rank 0 ",
                   "ended, which its output explains; ", kOtherPort);
        channel.close();
      }
    } catch (const CommunicationError& e) {
      why_ = cat("another program answers: ", e.what(), "; ", kOtherPort);
      channel.close();
    }
    return std::nullopt;
  }

  void read_welcome(BodyReader& body) {
    welcome_.launch_id = body.number();
    const std::string of_server = body.text();
    for (int rank = 0; rank < world_.size; ++rank) {
      std::string host = body.text();
      welcome_.peers.push_back({rank, std::move(host), static_cast<long>(body.number())});
    }
    // A rank beside rank 0 may have come to it by a way that other machines have not.
    const std::string near = near_end(welcome_.channel.socket()).host;
    welcome_.local_address = is_loopback(near) ? of_server : near;
  }

  const World& world_;
  const SessionOptions& options_;
  const Address server_;
  std::string token_;
  const bool shared_;
  const Clock::time_point started_, deadline_;
  std::string why_ = "nobody answers";
  bool said_why_ = false;
  Welcome welcome_;
};

}  // namespace

Welcome enter(const World& world, const SessionOptions& options, const Address& server,
              std::string token) {
  return Entry(world, options, server, std::move(token)).run();
}

void say_declined(const World& world, const SessionOptions& options, const Address& server,
                  std::string token, ExitCode code, const std::string& message) {
  Entry(world, options, server, std::move(token)).decline(code, message);
}

std::string own_host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

}  // namespace fovea::dist
