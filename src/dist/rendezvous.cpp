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

class Entry {
 public:
  Entry(const World& world, const SessionOptions& options, const Address& server, std::string token)
      : world_(world),
        options_(options),
        server_(server),
        token_(std::move(token)),
        shared_(token_.empty()),
        deadline_(Clock::now() + options.join_timeout) {}

  Welcome run() {
    do {
      if (shared_) token_ = read_token(options_.folder);
      if (token_.empty()) {
        why_ = cat(token_path(options_.folder), ", which rank 0 writes, is not there. Ranks that ",
                   "do not share this folder need FOVEA_TOKEN, one secret for all");
      } else if (connect() && is_welcome()) {
        return std::move(welcome_);
      }
      std::this_thread::sleep_for(std::min(kRetry, left()));
    } while (left() > milliseconds(0));
    give_up();
  }

 private:
  milliseconds left() const {
    const auto out = std::chrono::duration_cast<milliseconds>(deadline_ - Clock::now());
    return std::max(out, milliseconds(0));
  }

  [[noreturn]] void give_up() const {
    throw CommunicationError(cat("rank ", world_.rank, " of ", world_.size, ": rendezvous at ",
                                 text_of(server_), ": ", why_));
  }

  bool connect() {
    std::string why;
    Socket socket =
        connect_to(server_.host, server_.port, std::clamp(left(), kRetry, kConnecting), why);
    if (!socket.is_open()) {
      why_ = cat("nobody answers (", why, ")");
      return false;
    }
    welcome_.channel = Channel(std::move(socket));
    welcome_.channel.post(Frame::hello, Body()
                                            .add(token_)
                                            .add(static_cast<std::uint64_t>(world_.rank))
                                            .add(static_cast<std::uint64_t>(world_.size))
                                            .add(own_host_name())
                                            .add(static_cast<std::uint64_t>(::getpid()))
                                            .bytes());
    return true;
  }

  // Whether rank 0 answers well; throws if another attempt would end in the same way.
  bool is_welcome() {
    const auto frame = answer();
    if (!frame) return false;
    BodyReader body(frame->body);
    if (frame->type == Frame::welcome) {
      read_welcome(body);
      if (body.good()) return true;
    } else if (frame->type == Frame::refused) {
      why_ = cat("rank 0 refuses this rank: ", body.text());
      // Rank 0 of an earlier start may still be there, while the file is not yet of this one.
      if (!shared_) give_up();
    } else if (frame->type == Frame::end) {
      body.number();
      throw CommunicationError(body.text());
    }
    return false;
  }

  std::optional<ReceivedFrame> answer() {
    Channel& channel = welcome_.channel;
    const auto until = deadline_ + kItsTurn;
    why_ = "rank 0 may be there, but does not say that all others are";
    while (Clock::now() < until) {
      channel.flush();
      const int events = POLLIN | (channel.has_unsent() ? POLLOUT : 0);
      pollfd polled{channel.socket().get(), static_cast<short>(events), 0};
      if (::poll(&polled, 1, static_cast<int>(kRetry.count())) <= 0) continue;
      try {
        const bool open = channel.receive();
        if (auto frame = channel.take(kLargeFrame)) return frame;
        if (open) continue;
        why_ = "it closed the connection before all ranks were there";
      } catch (const CommunicationError& e) {
        why_ = cat("another program answers: ", e.what());
      }
      return std::nullopt;
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
  const Clock::time_point deadline_;
  std::string why_ = "nobody answers";
  Welcome welcome_;
};

}  // namespace

Welcome enter(const World& world, const SessionOptions& options, const Address& server,
              std::string token) {
  return Entry(world, options, server, std::move(token)).run();
}

std::string own_host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

}  // namespace fovea::dist
