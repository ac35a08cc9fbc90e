// Times of what ranks say to each other: who takes part, what is counted, and the records.

#include "study/bench_comm.h"

#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "dist/fake_session.h"

using namespace fovea;
using namespace fovea::study;
using namespace fovea::test;

namespace {

// Of every rank.
std::vector<std::vector<CommTime>> times_on(int ranks, std::vector<std::int64_t> bytes) {
  std::vector<std::vector<CommTime>> out(static_cast<std::size_t>(ranks));
  on_ranks(ranks, [&](FakeSession& session) {
    const auto comm = dist::gloo(session);
    Stream stream(kCpu);
    out[static_cast<std::size_t>(session.rank())] =
        time_comm(*comm, stream, {.bytes = bytes, .seconds = 1e-3});
    comm->barrier();
  });
  return out;
}

std::vector<std::string> operations_of(const std::vector<CommTime>& times) {
  std::vector<std::string> out;
  for (const CommTime& time : times)
    out.push_back(time.operation);
  return out;
}

}  // namespace

TEST_SUITE("study") {
  TEST_CASE("all ranks report the same times, of each operation and size") {
    const auto all = times_on(2, {1024, 40'000});
    REQUIRE(all[0].size() == 8);
    for (std::size_t i = 0; i < 8; ++i) {
      CHECK(all[0][i].bytes == (i < 4 ? 1024 : 40'000));
      CHECK(all[0][i].ms > 0);
      CHECK(all[0][i].ms == all[1][i].ms);
      CHECK(all[0][i].pieces >= 3);
      CHECK(all[0][i].share == 1);
    }
    const std::vector<std::string> names = {"all_reduce f32", "all_reduce bf16", "tree f32",
                                            "exchange"};
    CHECK(operations_of({all[0].begin(), all[0].begin() + 4}) == names);
  }

  TEST_CASE("three ranks have neither a tree nor pairs") {
    const auto all = times_on(3, {256});
    CHECK(operations_of(all[0]) == std::vector<std::string>{"all_reduce f32", "all_reduce bf16"});
    CHECK(all[0][0].share == doctest::Approx(4.0 / 3));
  }

  TEST_CASE("rates are bytes over time, and what crosses a link over time") {
    const CommTime time{.operation = "all_reduce f32", .bytes = 2'000'000, .ms = 0.5, .share = 1.5};
    CHECK(time.rate() == doctest::Approx(4e9));
    CHECK(time.bus_rate() == doctest::Approx(6e9));
  }

  TEST_CASE("the record has a norm only where the link's rate is known") {
    CommBench bench{.device = "a GPU",
                    .library = "NCCL 2.0.0",
                    .ranks = 4,
                    .link = {"2 NVLinks", 50e9},
                    .times = {{.operation = "exchange", .bytes = 1 << 20, .ms = 0.5}}};
    const auto record = [&] {
      train::JsonObject out;
      add_to(out, bench);
      return nlohmann::json::parse(out.str());
    };
    nlohmann::json got = record();
    CHECK(got["ranks"] == 4);
    CHECK(got["link_rate"] == 50e9);
    CHECK(got["operations"][0]["of_link"].get<double>() ==
          doctest::Approx((1 << 20) / 0.5e-3 / 50e9));
    CHECK(text_of(bench).find("50 GB/s in each direction") != std::string::npos);
    bench.link = {"TCP within one machine", 0};
    got = record();
    CHECK(got["link_rate"].is_null());
    CHECK(got["operations"][0]["of_link"].is_null());
    CHECK(text_of(bench).find("no norm") != std::string::npos);
  }

  TEST_CASE("links carry what their makers say") {
    CHECK(18 * nvlink_rate(9) == 450e9);   // H100, H200
    CHECK(12 * nvlink_rate(8) == 300e9);   // A100
    CHECK(18 * nvlink_rate(10) == 900e9);  // B200
    CHECK(nvlink_rate(99) == 0);
    CHECK(16 * pcie_lane_rate(4) == doctest::Approx(31.5e9).epsilon(0.001));
    CHECK(16 * pcie_lane_rate(5) == doctest::Approx(63e9).epsilon(0.001));
    CHECK(pcie_lane_rate(0) == 0);
  }

  TEST_CASE("ranks on the CPU have no norm, on one machine or on several") {
    Meeting meeting;
    const FakeSession session(meeting, 0, 2);
    CHECK(link_of(session, kCpu).name == "TCP within one machine");
    CHECK(link_of(session, kCpu).rate == 0);
  }
}
