// Gloo between threads over the loopback: every operation, every dtype, and what it says when a
// peer is gone.

#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <list>
#include <numeric>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "core/error.h"
#include "core/log.h"
#include "core/tensor.h"
#include "dist/communicator.h"
#include "dist/fake_session.h"
#include "dist/session_ranks.h"

using namespace fovea;
using namespace fovea::test;
using dist::Communicator;
using dist::Reduce;

namespace {

Tensor filled(std::vector<double> values, DType dtype) {
  return Tensor::from(values, {static_cast<std::int64_t>(values.size())}, dtype);
}

// doctest's assertions are not for many threads at once: each rank leaves its result here.
using Results = std::vector<std::vector<double>>;

Results all_reduced(int ranks, std::int64_t elements, DType dtype, Reduce how) {
  Results out(static_cast<std::size_t>(ranks));
  on_ranks(ranks, [&](FakeSession& session) {
    const auto comm = dist::gloo(session);
    Stream stream(kCpu);
    std::vector<double> values;
    for (std::int64_t i = 0; i < elements; ++i)
      values.push_back(static_cast<double>((i * 7 + session.rank() * 5) % 19));
    const Tensor tensor = filled(values, dtype);
    comm->all_reduce(tensor.view(), how, stream);
    comm->barrier();
    out[static_cast<std::size_t>(session.rank())] = tensor.values();
  });
  return out;
}

double expected(int ranks, std::int64_t i, Reduce how) {
  double out = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto value = static_cast<double>((i * 7 + rank * 5) % 19);
    out = how == Reduce::sum ? out + value : std::max(out, value);
  }
  return out;
}

// An address as Gloo hands it on: of the socket, and a number of its own.
struct GlooAddress {
  sockaddr_storage socket{};
  std::int64_t number = -1;
};

// The ports of so many addresses in a row.
std::vector<int> ports_of(std::string_view addresses, int count) {
  std::vector<int> out;
  const std::size_t bytes = addresses.size() / static_cast<std::size_t>(count);
  for (std::size_t at = 0; at < addresses.size(); at += bytes) {
    sockaddr_in address{};
    std::memcpy(&address, addresses.data() + at, sizeof address);
    out.push_back(ntohs(address.sin_port));
  }
  return out;
}

// Of a rank that is to connect, and does not: the one with the lower address waits for it.
std::string highest_address() {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(65535);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  GlooAddress whole;
  std::memcpy(&whole.socket, &address, sizeof address);
  return {reinterpret_cast<const char*>(&whole), sizeof whole};
}

// Attempts that fail are told.
struct Quiet {
  Quiet() { log::console(false); }
  ~Quiet() { log::console(true); }
};

}  // namespace

TEST_SUITE("gloo") {
  TEST_CASE("all_reduce sums and finds the largest, in every dtype, on every rank") {
    for (const DType dtype :
         {DType::f64, DType::f32, DType::bf16, DType::f16, DType::i64, DType::i32, DType::u8}) {
      for (const Reduce how : {Reduce::sum, Reduce::max}) {
        INFO(name_of(dtype), how == Reduce::sum ? " sum" : " max");
        for (const auto& got : all_reduced(3, 1001, dtype, how)) {
          REQUIRE(got.size() == 1001);
          int wrong = 0;
          for (std::int64_t i = 0; i < 1001; ++i)
            wrong += got[static_cast<std::size_t>(i)] != expected(3, i, how);
          CHECK(wrong == 0);
        }
      }
    }
  }

  TEST_CASE("all_reduce takes one element, none, and more than one of Gloo's segments") {
    for (const std::int64_t elements : {0, 1, 2, 700'001}) {
      INFO(elements);
      for (const auto& got : all_reduced(4, elements, DType::f32, Reduce::sum)) {
        REQUIRE(got.size() == static_cast<std::size_t>(elements));
        if (elements > 0) CHECK(got.back() == expected(4, elements - 1, Reduce::sum));
      }
    }
  }

  TEST_CASE("values that no order of additions leaves alone are the same bits on all ranks") {
    Results out(4);
    on_ranks(4, [&](FakeSession& session) {
      const auto comm = dist::gloo(session);
      Stream stream(kCpu);
      std::vector<double> values(5000);
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = std::sin(static_cast<double>(i + 1)) * std::pow(10, 5 * session.rank() - 7);
      const Tensor tensor = filled(values, DType::f32);
      comm->all_reduce(tensor.view(), Reduce::sum, stream);
      comm->barrier();
      out[static_cast<std::size_t>(session.rank())] = tensor.values();
    });
    for (int rank = 1; rank < 4; ++rank)
      CHECK(out[static_cast<std::size_t>(rank)] == out[0]);
  }

  TEST_CASE("the largest of NaN and a number is NaN, whichever rank has it") {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    Results out(2);
    on_ranks(2, [&](FakeSession& session) {
      const auto comm = dist::gloo(session);
      Stream stream(kCpu);
      const Tensor tensor =
          session.rank() == 0 ? filled({nan, 1, 2}, DType::f32) : filled({1, nan, 3}, DType::f32);
      comm->all_reduce(tensor.view(), Reduce::max, stream);
      comm->barrier();
      out[static_cast<std::size_t>(session.rank())] = tensor.values();
    });
    for (const auto& got : out) {
      CHECK(std::isnan(got[0]));
      CHECK(std::isnan(got[1]));
      CHECK(got[2] == 3);
    }
  }

  TEST_CASE("exchange takes other sizes in the two directions, and nothing in one or both") {
    Results out(2);
    on_ranks(2, [&](FakeSession& session) {
      const auto comm = dist::gloo(session);
      Stream stream(kCpu);
      const int rank = session.rank();
      const std::vector<std::int64_t> sizes[2] = {{100'003, 0, 5, 0, 1'000'000},
                                                  {17, 4, 0, 0, 1'000'000}};
      for (std::size_t round = 0; round < sizes[0].size(); ++round) {
        const Tensor send = Tensor::empty({sizes[rank][round]}, DType::i32, kCpu);
        const Tensor receive = Tensor::empty({sizes[1 - rank][round]}, DType::i32, kCpu);
        std::iota(send.data<std::int32_t>(), send.data<std::int32_t>() + send.numel(),
                  1000 * rank + static_cast<int>(round));
        comm->exchange(send.view(), receive.view(), 1 - rank, stream);
        const std::vector<double> got = receive.values();
        double wrong = 0;
        for (std::size_t i = 0; i < got.size(); ++i)
          wrong +=
              got[i] != static_cast<double>(1000u * (1u - static_cast<unsigned>(rank)) + round + i);
        out[static_cast<std::size_t>(rank)].push_back(wrong);
      }
      comm->barrier();
    });
    for (const auto& got : out)
      CHECK(got == std::vector<double>(5, 0.0));
  }

  TEST_CASE("two communicators of one session do not take each other's messages") {
    Results out(2);
    on_ranks(2, [&](FakeSession& session) {
      const auto first = dist::gloo(session), second = dist::gloo(session);
      Stream stream(kCpu);
      const double mine = session.rank() + 1;
      const Tensor one = filled({mine}, DType::f32), two = filled({10 * mine}, DType::f32);
      for (int round = 0; round < 3; ++round) {
        second->all_reduce(two.view(), Reduce::sum, stream);
        first->all_reduce(one.view(), Reduce::max, stream);
      }
      first->barrier();
      out[static_cast<std::size_t>(session.rank())] = {one.item(), two.item()};
    });
    for (const auto& got : out)
      CHECK(got == std::vector<double>{2, 120});
  }

  TEST_CASE("every operation is counted, and none is open when it has returned") {
    std::vector<std::int64_t> counts(2);
    on_ranks(2, [&](FakeSession& session) {
      const auto comm = dist::gloo(session);
      Stream stream(kCpu);
      const std::int64_t before = session.collectives();
      const Tensor tensor = filled({1, 2}, DType::f32);
      comm->all_reduce(tensor.view(), Reduce::sum, stream);
      comm->barrier();
      counts[static_cast<std::size_t>(session.rank())] =
          session.waiting() ? -1 : session.collectives() - before;
    });
    CHECK(counts == std::vector<std::int64_t>{2, 2});
  }

  TEST_CASE("a peer that is gone ends the operation with its name") {
    std::string message;
    on_ranks(2, [&](FakeSession& session) {
      auto comm = dist::gloo(session);
      Stream stream(kCpu);
      comm->barrier();
      if (session.rank() == 1) return;
      const Tensor mine = filled({1, 2, 3}, DType::f32), theirs = filled({0}, DType::f32);
      try {
        comm->exchange(mine.view(), theirs.view(), 1, stream);
      } catch (const CommunicationError& error) {
        message = error.what();
      }
      message += session.waiting() ? " and still waits" : "";
    });
    CHECK(message.find("exchange of 3 f32 for 1 f32 with rank 1 (host here, pid 1001) failed on "
                       "rank 0 of 2: Gloo says") == 0);
    CHECK(message.find("still waits") == std::string::npos);
  }

  TEST_CASE("strangers who come to Gloo's ports first cost an attempt, and not the run") {
    const Quiet quiet;
    for (const char* says :
         {"", "GET / HTTP/1.1\r\nHost: a-machine-with-a-rather-long-name\r\n\r\n"}) {
      CAPTURE(says);
      std::vector<std::vector<double>> sums(3);
      std::vector<std::list<Stranger>> strangers(3);
      on_ranks(3, [&](FakeSession& session) {
        const auto rank = static_cast<std::size_t>(session.rank());
        int visits = 0;
        // The first gathering says that all listen, the second one where.
        session.before_gather = [&](std::string_view mine) {
          if (visits > 0 || mine.empty()) return;
          ++visits;
          for (const int port : ports_of(mine, session.size() - 1)) {
            strangers[rank].emplace_back(port);
            strangers[rank].back().say(says);
          }
          std::this_thread::sleep_for(std::chrono::milliseconds(100));
        };
        const auto comm = dist::gloo(session, std::chrono::seconds(20));
        Stream stream(kCpu);
        const Tensor tensor = filled({1.0 + session.rank()}, DType::f32);
        comm->all_reduce(tensor.view(), Reduce::sum, stream);
        comm->barrier();
        sums[rank] = tensor.values();
      });
      CHECK(sums == std::vector<std::vector<double>>(3, {6}));
    }
  }

  TEST_CASE("a rank that does not connect ends the wait of all, in time and with its name") {
    const Quiet quiet;
    std::vector<std::string> messages(2);
    const auto begin = std::chrono::steady_clock::now();
    on_ranks(2, [&](FakeSession& session) {
      std::string& message = messages[static_cast<std::size_t>(session.rank())];
      if (session.rank() == 0) {
        try {
          dist::gloo(session, std::chrono::seconds(1));
        } catch (const CommunicationError& e) {
          message = e.what();
        }
        return;
      }
      // Says what a rank says, and connects to nobody.
      for (int attempt = 0; attempt < 3; ++attempt) {
        session.gather({});
        session.gather(highest_address());
        session.gather({});
      }
    });
    CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(30));
    CHECK(contains(messages[0],
                   "connecting all ranks failed on rank 0 (host here, pid 1000): with rank 1"));
  }

  TEST_CASE("more ranks than a machine has ports for are refused before anything is tried") {
    Meeting meeting;
    FakeSession session(meeting, 3, 1000);
    CHECK_THROWS_WITH_AS(dist::gloo(session),
                         doctest::Contains("1000 ranks on one machine need 999000 ports for Gloo"),
                         ConfigError);
  }

  TEST_CASE("an address that is not this machine's is refused") {
    struct Elsewhere final : dist::Session {
      int rank() const override { return 0; }
      int size() const override { return 1; }
      const std::vector<dist::Peer>& peers() const override { return peers_; }
      std::uint64_t launch_id() const override { return 1; }
      std::string local_address() const override { return "203.0.113.7"; }
      void set(const std::string& /*key*/, std::string_view /*value*/) override {}
      std::string get(const std::string& /*key*/) override { return {}; }
      std::vector<std::string> gather(std::string_view mine) override {
        return {std::string(mine)};
      }
      void leave() override {}
      void fail(ExitCode /*code*/, const std::string& /*message*/) noexcept override {}
      std::vector<dist::Peer> peers_{{}};
    } session;
    CHECK_THROWS_AS(dist::gloo(session), CommunicationError);
  }
}
