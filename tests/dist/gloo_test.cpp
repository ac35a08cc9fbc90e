// Gloo between threads over the loopback: every operation, every dtype, and what it says when a
// peer is gone.

#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "core/error.h"
#include "core/tensor.h"
#include "dist/communicator.h"
#include "dist/fake_session.h"

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
