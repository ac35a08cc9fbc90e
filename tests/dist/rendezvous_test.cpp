// Connections of those who are no ranks of the run: refused and logged, and nothing hangs.

#include <array>
#include <atomic>
#include <chrono>
#include <fstream>
#include <iterator>
#include <list>
#include <string>
#include <thread>

#include <doctest/doctest.h>

#include "core/log.h"
#include "dist/session_ranks.h"
#include "dist/wire.h"

using namespace fovea;
using namespace fovea::test;
using std::chrono::milliseconds;

namespace {

// What the log says from now on.
class Log {
 public:
  Log() {
    log::console(false);
    log::to_file(path_);
  }
  ~Log() { log::console(true); }
  std::string text() const {
    log::flush();
    std::ifstream file(path_);
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  TempFolder folder_;
  std::string path_ = folder_ / "log";
};

std::string frame(dist::Frame type, const std::string& body) {
  std::array<int, 2> pair{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair.data()) == 0);
  dist::Channel channel{dist::Socket(pair[0])};
  channel.post(type, body);
  channel.flush();
  channel.close();
  std::string out(1 << 16, '\0');
  const ssize_t n = ::read(pair[1], out.data(), out.size());
  ::close(pair[1]);
  out.resize(static_cast<std::size_t>(n));
  return out;
}

std::string hello(const std::string& token, std::uint64_t rank, std::uint64_t size) {
  return frame(dist::Frame::hello, dist::Body()
                                       .add(token)
                                       .add(rank)
                                       .add(size)
                                       .add("elsewhere")
                                       .add(std::uint64_t{1})
                                       .add(std::uint64_t{0})
                                       .add("")
                                       .add("")
                                       .bytes());
}

// Two ranks, and a third one that knows the token but is no Session.
struct WithStranger {
  WithStranger() {
    Listener listener;
    const int port = listener.port(), descriptor = listener.release();
    third.emplace(port);
    third->say(hello("secret", 2, 3));
    in_threads(2, [&](int rank) {
      dist::World world = world_of(rank, 3, port);
      if (rank == 0) world.listener = descriptor;
      dist::SessionOptions options = quick_options();
      options.on_failure = [this](ExitCode code, const std::string& message) {
        failure.set(code, message);
      };
      sessions[static_cast<std::size_t>(rank)] = dist::Session::join(world, options);
    });
  }
  Failure failure;
  std::optional<Stranger> third;
  std::vector<std::unique_ptr<dist::Session>> sessions =
      std::vector<std::unique_ptr<dist::Session>>(2);
};

struct Case {
  const char* what;
  std::string says;
  const char* why;
};

std::vector<Case> cases() {
  std::string oversized = hello("secret", 1, 2);
  oversized[8 + 5] = 1;  // 2^40 bytes are to come
  std::string other_version = hello("secret", 1, 2);
  other_version[4] ^= 0x40;
  return {
      {"HTTP", "GET / HTTP/1.1\r\nHost: here\r\n\r\n", "these bytes are no fovea's"},
      {"TLS", std::string("\x16\x03\x01\x02\x00\x01\x00\x01", 8), "these bytes are no fovea's"},
      {"zeros", std::string(100'000, '\0'), "these bytes are no fovea's"},
      {"another job", hello("another secret", 1, 2), "its token is of another run"},
      {"a beginning of the token", hello("secre", 1, 2), "its token is of another run"},
      {"no token", hello("", 1, 2), "its token is of another run"},
      {"another size", hello("secret", 1, 3), "rank 1 of 3, but the run has 2 ranks"},
      {"too high a rank", hello("secret", 2, 2), "rank 2 of 2, but the run has 2 ranks"},
      {"an oversized frame", oversized, "bytes, but at most 4096"},
      {"another version", other_version, "another version of fovea"},
      {"a frame before the token", frame(dist::Frame::set, "key"), "a frame before the token"},
      {"a greeting without end", frame(dist::Frame::hello, "x"), "its greeting is too short"},
  };
}

void check_refused(int port, const Log& log) {
  for (const Case& c : cases()) {
    CAPTURE(c.what);
    Stranger stranger(port);
    stranger.say(c.says);
    CHECK(stranger.answer());
    CHECK(contains(log.text(), c.why));
  }
}

}  // namespace

TEST_CASE("strangers are refused and logged while ranks are awaited") {
  const Log log;
  Listener listener;
  const int port = listener.port(), descriptor = listener.release();
  std::unique_ptr<dist::Session> first, second;
  std::thread waiting([&] {
    dist::World world = world_of(0, 2, port);
    world.listener = descriptor;
    first = dist::Session::join(world, quick_options());
  });
  check_refused(port, log);
  second = dist::Session::join(world_of(1, 2, port), quick_options());
  waiting.join();
  CHECK(contains(log.text(), "a connection from 127.0.0.1:"));
  CHECK_FALSE(contains(log.text(), "secret"));
  std::thread leaving([&] { first->leave(); });
  second->leave();
  leaving.join();
}

TEST_CASE("strangers are refused and logged while a run goes on") {
  const Log log;
  SessionRanks ranks(2);
  check_refused(ranks.port, log);
  Stranger duplicate(ranks.port);
  duplicate.say(hello("secret", 1, 2));
  CHECK(contains(*duplicate.answer(), "is here already"));
  CHECK(ranks.each([](dist::Session& session) { session.barrier(); }) ==
        std::vector<std::string>(2));
  ranks.leave();
}

TEST_CASE("connections that say nothing, or little by little, hold nobody up") {
  const Log log;
  SessionRanks ranks(2);
  const Stranger quiet(ranks.port);
  Stranger half(ranks.port), slow(ranks.port);
  half.say(hello("secret", 1, 2).substr(0, 20));
  std::atomic<bool> stop{false};
  std::thread dribbling([&] {
    const std::string all = hello("secret", 1, 2);
    for (std::size_t i = 0; i < all.size() && !stop && slow.say(all.substr(i, 1)); ++i)
      std::this_thread::sleep_for(milliseconds(20));
  });
  CHECK(ranks.each([](dist::Session& session) { session.barrier(); }) ==
        std::vector<std::string>(2));
  CHECK(half.answer());
  stop = true;
  dribbling.join();
  CHECK(slow.answer());
  CHECK(contains(log.text(), "it showed no token within 300 ms"));
  ranks.leave();
}

TEST_CASE("hundreds of open connections keep no rank out") {
  const Log log;
  dist::SessionOptions options = quick_options();
  options.greeting = std::chrono::seconds(60);
  Listener listener;
  const int port = listener.port(), descriptor = listener.release();
  std::unique_ptr<dist::Session> first, second;
  std::thread waiting([&] {
    dist::World world = world_of(0, 2, port);
    world.listener = descriptor;
    first = dist::Session::join(world, options);
  });
  {
    std::list<Stranger> crowd;
    for (int i = 0; i < 300; ++i)
      crowd.emplace_back(port);
    second = dist::Session::join(world_of(1, 2, port), options);
    waiting.join();
    CHECK(contains(log.text(), "too many have shown no token"));
    CHECK(contains(log.text(), "more of them in this minute are not logged"));
  }
  std::thread leaving([&] { first->leave(); });
  second->leave();
  leaving.join();
}

TEST_CASE("a rank that said goodbye and is gone holds nobody up") {
  WithStranger run;
  run.third->say(frame(dist::Frame::leave, {}));
  run.third.reset();
  run.sessions[0]->set("key", "value");
  CHECK(run.sessions[1]->get("key") == "value");
  const auto errors =
      in_threads(2, [&](int rank) { run.sessions[static_cast<std::size_t>(rank)]->leave(); });
  CHECK(errors == std::vector<std::string>(2));
  CHECK(run.failure.calls() == 0);
}

TEST_CASE("a rank that sends what none would send is named") {
  WithStranger run;
  run.third->say("nonsense");
  CHECK(run.failure.message() ==
        "rank 2 (host elsewhere, pid 1) sent something wrong: these bytes are no fovea's");
}

TEST_CASE("a rank of another run is told that it is refused") {
  const Log log;
  SessionRanks ranks(2);
  const std::string error = message_of(
      [&] { dist::Session::join(world_of(1, 2, ranks.port, "another"), quick_options()); });
  CHECK(contains(error, "rank 1 of 2: rendezvous at 127.0.0.1:"));
  CHECK(contains(error, "rank 0 refuses this rank: its token is of another run"));
  CHECK_FALSE(contains(error, "secret"));
  ranks.leave();
}

TEST_CASE("a second process of a rank is told that it is refused") {
  const Log log;
  SessionRanks ranks(2);
  const std::string error =
      message_of([&] { dist::Session::join(world_of(1, 2, ranks.port), quick_options()); });
  CHECK(contains(error, "rank 0 refuses this rank: " + ranks.name(1) + " is here already"));
  ranks.leave();
}

TEST_CASE("a rank that meets another program says so") {
  Listener listener;
  const int port = listener.port(), descriptor = listener.release();
  std::thread other([&] {
    const int connection = ::accept(descriptor, nullptr, nullptr);
    ::send(connection, "220 mail.example\r\n", 18, MSG_NOSIGNAL);
    ::close(connection);
    ::close(descriptor);
  });
  dist::SessionOptions options = quick_options();
  options.join_timeout = milliseconds(100);
  const std::string error = message_of([&] { dist::Session::join(world_of(1, 2, port), options); });
  other.join();
  CHECK(contains(error, "another program answers: these bytes are no fovea's"));
}
