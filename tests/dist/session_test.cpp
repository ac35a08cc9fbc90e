// Ranks that meet, talk, leave and are lost, as threads of one process.

#include "dist/session.h"

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include <doctest/doctest.h>
#include <sys/stat.h>

#include "dist/session_ranks.h"

using namespace fovea;
using namespace fovea::test;
using std::chrono::milliseconds;
using std::chrono::seconds;

TEST_CASE("one process has a session without network") {
  const auto session = dist::Session::join({}, {});
  CHECK(session->rank() == 0);
  CHECK(session->size() == 1);
  CHECK(session->peers().size() == 1);
  session->set("key", "value");
  CHECK(session->get("key") == "value");
  CHECK(contains(message_of([&] { session->get("other"); }), "nobody else to set it"));
  CHECK(session->gather("mine") == std::vector<std::string>{"mine"});
  session->barrier();
  session->leave();
}

TEST_CASE("ranks that met know each other") {
  SessionRanks ranks(4);
  for (int rank = 0; rank < 4; ++rank) {
    dist::Session& session = ranks[rank];
    CHECK(session.rank() == rank);
    CHECK(session.size() == 4);
    CHECK(session.launch_id() == ranks[0].launch_id());
    CHECK(session.local_address() == "127.0.0.1");
    REQUIRE(session.peers().size() == 4);
    for (int peer = 0; peer < 4; ++peer) {
      CHECK(session.peers()[static_cast<std::size_t>(peer)].rank == peer);
      CHECK(session.peers()[static_cast<std::size_t>(peer)].pid == ::getpid());
    }
  }
  SessionRanks again(2);
  CHECK(again[0].launch_id() != ranks[0].launch_id());
  again.leave();
  ranks.leave();
  for (Failure& failure : ranks.failures)
    CHECK(failure.calls() == 0);
}

TEST_CASE("a gathering brings everybody's bytes by rank, round by round") {
  SessionRanks ranks(4);
  const auto errors = ranks.each([](dist::Session& session) {
    for (int round = 0; round < 50; ++round) {
      const auto all = session.gather(std::to_string(100 * round + session.rank()));
      for (int rank = 0; rank < 4; ++rank) {
        if (all.at(static_cast<std::size_t>(rank)) != std::to_string(100 * round + rank))
          throw std::runtime_error("wrong bytes");
      }
    }
  });
  CHECK(errors == std::vector<std::string>(4));
  ranks.leave();
}

TEST_CASE("a gathering may be large and uneven") {
  SessionRanks ranks(3);
  const auto bytes_of = [](int rank) {
    return std::string(static_cast<std::size_t>(rank) * 12'000'000, static_cast<char>('a' + rank));
  };
  const auto errors = ranks.each([&](dist::Session& session) {
    const auto all = session.gather(bytes_of(session.rank()));
    for (int rank = 0; rank < 3; ++rank) {
      if (all.at(static_cast<std::size_t>(rank)) != bytes_of(rank))
        throw std::runtime_error("wrong bytes");
    }
  });
  CHECK(errors == std::vector<std::string>(3));
  ranks.leave();
}

TEST_CASE("get waits until somebody has set the key, in several threads at once") {
  SessionRanks ranks(3);
  std::string one, two, other;
  std::thread first([&] { one = ranks[1].get("key"); });
  std::thread second([&] { two = ranks[1].get("key"); });
  std::thread third([&] { other = ranks[2].get("other"); });
  ranks[0].set("other", "value of other");
  third.join();
  ranks[2].set("key", std::string("\0value", 6));
  first.join();
  second.join();
  CHECK(one == std::string("\0value", 6));
  CHECK(two == one);
  CHECK(other == "value of other");
  CHECK(ranks[0].get("key") == one);
  ranks.leave();
}

TEST_CASE("leave returns when all have left") {
  SessionRanks ranks(3);
  std::atomic<int> left{0};
  std::thread first([&] { ranks[0].leave(), ++left; });
  std::thread second([&] { ranks[1].leave(), ++left; });
  std::this_thread::sleep_for(milliseconds(200));
  CHECK(left == 0);
  ranks[2].leave();
  first.join();
  second.join();
  ranks.sessions.clear();
  for (Failure& failure : ranks.failures)
    CHECK(failure.calls() == 0);
}

TEST_CASE("all ranks hear who died, and where") {
  SessionRanks ranks(4);
  const std::string dead = ranks.name(2);
  ranks[2].at("forward and backward", 120);
  for (int i = 0; i < 7; ++i) {
    ranks[2].enter_collective();
    ranks[2].leave_collective();
  }
  std::string error;
  std::thread waiting([&] { error = message_of([&] { ranks[3].barrier(); }); });
  std::this_thread::sleep_for(milliseconds(300));  // a few beats
  ranks.sessions[2].reset();
  const std::string message =
      dead + " died in phase 'forward and backward', step 120, collective 7";
  for (const std::size_t rank : {0, 1, 3}) {
    CHECK(ranks.failures[rank].message() == message);
    CHECK(ranks.failures[rank].code() == ExitCode::communication);
  }
  waiting.join();
  CHECK(error == message);
  CHECK(message_of([&] { ranks[1].get("key"); }) == message);
  for (const std::size_t rank : {0, 1, 3})
    CHECK(ranks.failures[rank].calls() == 1);
}

TEST_CASE("all ranks hear that rank 0 died") {
  SessionRanks ranks(3);
  const std::string dead = ranks.name(0);
  ranks[0].at("update", 5);
  std::this_thread::sleep_for(milliseconds(300));
  ranks.sessions[0].reset();
  for (const std::size_t rank : {1, 2})
    CHECK(ranks.failures[rank].message() == dead + " died in phase 'update', step 5, collective 0");
}

TEST_CASE("a rank that fails gives all others its code and its message") {
  SessionRanks ranks(3);
  ranks[1].fail(ExitCode::non_finite, "the loss is nan");
  for (const std::size_t rank : {0, 2}) {
    CHECK(ranks.failures[rank].message() == ranks.name(1) + " ended: the loss is nan");
    CHECK(ranks.failures[rank].code() == ExitCode::non_finite);
  }
  CHECK(ranks.failures[1].calls() == 0);
  ranks.sessions[1].reset();
}

TEST_CASE("rank 0 may be the one that fails") {
  SessionRanks ranks(3);
  ranks[0].fail(ExitCode::device, "the GPU is gone");
  for (const std::size_t rank : {1, 2})
    CHECK(ranks.failures[rank].message() == ranks.name(0) + " ended: the GPU is gone");
  CHECK(ranks.failures[0].calls() == 0);
}

TEST_CASE("a rank's complaint about the network gives way to the news of who died") {
  SessionRanks ranks(3);
  const std::string dead = ranks.name(2);
  std::thread complaining(
      [&] { ranks[1].fail(ExitCode::communication, "connection closed by peer"); });
  std::this_thread::sleep_for(milliseconds(100));
  ranks.sessions[2].reset();
  complaining.join();
  for (const std::size_t rank : {0, 1})
    CHECK(ranks.failures[rank].message() ==
          dead + " died in phase 'starting', step 0, collective 0");
}

TEST_CASE("a rank's complaint about the network is heard where nobody died") {
  SessionRanks ranks(3);
  ranks[1].fail(ExitCode::communication, "connection closed by peer");
  for (const std::size_t rank : {0, 2})
    CHECK(ranks.failures[rank].message() == ranks.name(1) + " ended: connection closed by peer");
  CHECK(ranks.failures[1].calls() == 0);
}

TEST_CASE("a rank without a sign of life is named, and hears of it itself") {
  dist::SessionOptions options = quick_options();
  options.lost_after = milliseconds(1500);
  SessionRanks ranks(3, options, [](int rank, dist::SessionOptions& own) {
    if (rank == 1) own.beat = seconds(3600);
  });
  for (const std::size_t rank : {0, 1, 2}) {
    CHECK(contains(ranks.failures[rank].message(), ranks.name(1) + " hangs in phase 'starting'"));
    CHECK(ranks.failures[rank].code() == ExitCode::communication);
  }
}

TEST_CASE("a rank that beats but stands still while others wait is named") {
  dist::SessionOptions options = quick_options();
  options.lost_after = milliseconds(1500);
  SessionRanks ranks(3, options);
  for (const int rank : {0, 1, 2})
    ranks[rank].at("evaluate", 12);
  std::thread first([&] { message_of([&] { ranks[0].barrier(); }); });
  std::thread second([&] { message_of([&] { ranks[2].barrier(); }); });
  for (const std::size_t rank : {0, 1, 2}) {
    const std::string message = ranks.failures[rank].message();
    CHECK(contains(message, ranks.name(1) + " has stood still for "));
    CHECK(contains(message,
                   " in phase 'evaluate', step 12, collective 0, while 2 others wait in "
                   "collective 1"));
  }
  first.join();
  second.join();
}

TEST_CASE("a missing rank is named by all that are there") {
  Listener listener;
  const int port = listener.port(), descriptor = listener.release();
  const auto errors = in_threads(4, [&](int rank) {
    if (rank == 1 || rank == 3) return;
    dist::SessionOptions options = quick_options();
    options.join_timeout = milliseconds(500);
    dist::World world = world_of(rank, 4, port);
    if (rank == 0) world.listener = descriptor;
    dist::Session::join(world, options);
  });
  CHECK(
      contains(errors[0], "rendezvous at 127.0.0.1:" + std::to_string(port) +
                              ": after 500 ms ranks 1, 3 of 4 are not here: it takes every rank"));
  CHECK(errors[2] == errors[0]);
}

TEST_CASE("a rank that finds nobody says where it looked") {
  int port = 0;
  {
    const Listener listener;
    port = listener.port();
  }
  dist::SessionOptions options = quick_options();
  options.join_timeout = milliseconds(300);
  const std::string error = message_of([&] { dist::Session::join(world_of(1, 2, port), options); });
  CHECK(contains(error, "rank 1 of 2: rendezvous at 127.0.0.1:" + std::to_string(port) +
                            ": nobody answers (Connection refused): rank 0 is to listen there"));
}

TEST_CASE("without a token a rank says whether anybody is there, too") {
  const TempFolder folder;
  dist::SessionOptions options = quick_options();
  options.folder = folder / "run";
  options.join_timeout = milliseconds(300);
  Listener listener;
  const auto error_at = [&](const std::string& host, int port) {
    dist::World world = world_of(1, 2, port, "");
    world.host = host;
    return message_of([&] { dist::Session::join(world, options); });
  };
  const std::string there = error_at("127.0.0.1", listener.port());
  CHECK(contains(there, "somebody listens there; "));
  CHECK(contains(there, ".token, which rank 0 writes, is not there"));
  ::close(listener.release());
  const std::string nobody = error_at("127.0.0.1", listener.port());
  CHECK(contains(nobody, "nobody answers (Connection refused): rank 0 is to listen there"));
  CHECK(contains(nobody, ".token, which rank 0 writes, is not there"));
  CHECK(contains(error_at("no-such-host.invalid", 1), "nobody answers (no-such-host.invalid: "));
}

TEST_CASE("an address in use is an error that says so") {
  const Listener listener;
  const std::string error =
      message_of([&] { dist::Session::join(world_of(0, 2, listener.port()), quick_options()); });
  CHECK(contains(error, "127.0.0.1:" + std::to_string(listener.port())));
  CHECK(contains(error, "Address already in use"));
  CHECK(contains(error, "FOVEA_RENDEZVOUS=host:port"));
}

TEST_CASE("ranks without a token in the environment agree on one by a private file") {
  log::console(false);  // strangers to each other at first
  const TempFolder folder;
  folder.put("run/.token", "what an earlier start has left");
  ::chmod((folder / "run/.token").c_str(), 0644);
  Listener listener;
  const int port = listener.port(), descriptor = listener.release();
  std::vector<std::unique_ptr<dist::Session>> sessions(3);
  std::thread late([&] {
    dist::World world = world_of(0, 3, port, "");
    world.listener = descriptor;
    dist::SessionOptions options = quick_options();
    options.folder = folder / "run";
    std::this_thread::sleep_for(milliseconds(300));
    sessions[0] = dist::Session::join(world, options);
  });
  const auto errors = in_threads(3, [&](int rank) {
    if (rank == 0) return;
    dist::SessionOptions options = quick_options();
    options.folder = folder / "run";
    sessions[static_cast<std::size_t>(rank)] =
        dist::Session::join(world_of(rank, 3, port, ""), options);
  });
  late.join();
  CHECK(errors == std::vector<std::string>(3));
  struct stat status {};
  REQUIRE(::stat((folder / "run/.token").c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0600);
  CHECK(status.st_size == 32);
  in_threads(3, [&](int rank) { sessions[static_cast<std::size_t>(rank)]->leave(); });
  log::console(true);
}

TEST_CASE("a rank is named where it stood last, however seldom it gives signs of life") {
  dist::SessionOptions options = quick_options();
  options.beat = std::chrono::minutes(10);
  for (const int lost : {0, 2}) {
    SessionRanks ranks(3, options);
    ranks.each([](dist::Session& session) { session.at("update", 7); });
    ranks[lost].at("checkpoint", 41);
    std::this_thread::sleep_for(milliseconds(200));
    const std::string name = ranks.name(lost);
    ranks.sessions[static_cast<std::size_t>(lost)].reset();
    CHECK(contains(ranks.failures[1].message(), name + " died in phase 'checkpoint', step 41"));
  }
}

TEST_CASE("places that change all the time are told as they are, not all of them") {
  dist::SessionOptions options = quick_options();
  options.beat = std::chrono::minutes(10);
  SessionRanks ranks(2, options);
  for (int step = 1; step <= 20'000; ++step)
    ranks[1].at("update", step);
  std::this_thread::sleep_for(milliseconds(200));
  const std::string name = ranks.name(1);
  ranks.sessions[1].reset();
  CHECK(contains(ranks.failures[0].message(), name + " died in phase 'update', step 20000,"));
}
