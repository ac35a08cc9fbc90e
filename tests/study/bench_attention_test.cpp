// The record of a timed method, the rows of other systems, and what a runner computes.

#include "study/bench_attention.h"

#include <cmath>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "config/yaml.h"
#include "core/error.h"
#include "core/text.h"
#include "data/temp_folder.h"
#include "study/attention_runner.h"
#include "study/timing.h"

using namespace fovea;
using namespace fovea::study;
using fovea::test::TempFolder;

namespace {

AttentionSize size_of_peer(bool causal, std::int64_t n = 64) {
  AttentionSize out;
  out.batch = 2;
  out.queries = out.keys = n;
  out.heads = out.kv_heads = 4;
  out.causal = causal;
  return out;
}

std::vector<std::string> names(const std::vector<PeerTime>& times) {
  std::vector<std::string> out;
  for (const PeerTime& time : times)
    out.push_back(time.name);
  return out;
}

}  // namespace

TEST_SUITE("study") {
  TEST_CASE("rows of a list fit by their sizes, and by what their name says of causality") {
    const TempFolder folder;
    const Peers peers(folder.put("peers.json", R"([
      {"name": "dense-causal", "N": 64, "B": 2, "H": 4, "D": 64, "fwd_ms": 1, "bwd_ms": 2},
      {"name": "dense-full", "N": 64, "B": 2, "H": 4, "D": 64, "fwd_ms": 3, "bwd_ms": 4},
      {"name": "either", "N": 64, "B": 2, "H": 4, "D": 64, "fwd_ms": 5, "bwd_ms": 6},
      {"name": "causal, narrow", "N": 64, "B": 2, "H": 4, "D": 64, "Dqk": 16, "fwd_ms": 7},
      {"name": "causal, grouped", "N": 64, "B": 2, "H": 4, "Hk": 2, "D": 64, "fwd_ms": 7},
      {"name": "causal, long", "N": 65, "B": 2, "H": 4, "D": 64, "fwd_ms": 7},
      {"name": "causal, failed", "N": 64, "B": 2, "H": 4, "D": 64, "err": "no memory"},
      3])"));
    CHECK(names(peers.of(size_of_peer(true))) ==
          std::vector<std::string>{"dense-causal", "either"});
    CHECK(names(peers.of(size_of_peer(false))) == std::vector<std::string>{"dense-full", "either"});
    AttentionSize narrow = size_of_peer(true), grouped = narrow;
    narrow.qk_dim = 16;
    grouped.kv_heads = 2;
    CHECK(names(peers.of(narrow)) ==
          std::vector<std::string>{"dense-causal", "either", "causal, narrow"});
    CHECK(names(peers.of(grouped)) == std::vector<std::string>{"causal, grouped"});
    CHECK(peers.of(size_of_peer(true))[0].backward_ms == 2);
  }

  TEST_CASE("parts of an object name their rows, and a row of one query fits decoding alone") {
    const TempFolder folder;
    const Peers peers(folder.put("peers.json", R"({"torch": "2", "ceil": {"copy_TBps": 4},
      "sdpa": [{"D": 64, "causal": true, "N": 64, "B": 2, "H": 4, "be": "flash", "fwd_ms": 1,
                "bwd_ms": 2},
               {"D": 64, "causal": false, "N": 64, "B": 2, "H": 4, "be": "flash", "err": "no"}],
      "decode": [{"D": 64, "N": 64, "B": 2, "H": 4, "be": "cudnn", "ms": 0.5, "TBps": 3}]})"));
    CHECK(names(peers.of(size_of_peer(true))) == std::vector<std::string>{"sdpa flash"});
    CHECK(peers.of(size_of_peer(false)).empty());
    AttentionSize decode = size_of_peer(false);
    decode.queries = 1;
    CHECK(names(peers.of(decode)) == std::vector<std::string>{"decode cudnn"});
    CHECK(peers.of(decode)[0].backward_ms == 0);
    CHECK_THROWS_AS(Peers(folder.put("peers.txt", "{")), IoError);
    CHECK_THROWS_AS(Peers("/no/such/file"), IoError);
  }

  TEST_CASE("table and record hold rates, limits, errors and how a peer compares") {
    AttentionTime time;
    time.size = size_of_peer(true);
    time.kernel = "tiled";
    time.forward = {
        .ms = 2, .useful = 4e9, .executed = 5e9, .bytes = 6e6, .floor_ms = 1, .gpu = {}};
    time.backward = {.ms = 4, .useful = 8e9, .executed = 8e9, .floor_ms = 1, .gpu = {}};
    time.errors = {{"o", 1e-3}, {"dq", 2e-3}};
    time.error_n = 64;
    time.peers = {{"other", 3, 2}, {"forward alone", 1, 0}};
    const auto json = nlohmann::json::parse(json_of(std::vector{time}))[0];
    CHECK(json["forward"]["useful_rate"].get<double>() == doctest::Approx(2e12));
    CHECK(json["forward"]["executed_rate"].get<double>() == doctest::Approx(2.5e12));
    CHECK(json["forward"]["byte_rate"].get<double>() == doctest::Approx(3e9));
    CHECK(json["forward"]["of_limit"] == 0.5);
    CHECK(json["backward"]["of_limit"] == 0.25);
    CHECK(json["error"] == 2e-3);
    CHECK(json["errors"]["o"] == 1e-3);
    CHECK(json["peers"][0]["forward_speedup"] == 1.5);
    CHECK(json["peers"][0]["backward_speedup"] == 0.5);
    CHECK(json["peers"][1]["backward_speedup"].is_null());
    const std::string text = text_of(std::vector{time});
    CHECK(text.find("against other: forward 1.5, backward 0.5, both 0.833") != std::string::npos);
    CHECK(text.find("o 1.0e-03, dq 2.0e-03 at 64 tokens") != std::string::npos);
  }

  TEST_CASE("work after an untimed preparation is timed alone, and as often as prepared") {
    Stream stream(kCpu);
    int prepared = 0, worked = 0;
    const Timing timing = time_after(
        stream, [&] { ++prepared; }, [&] { ++worked; },
        {.warm_seconds = 0, .seconds = 0, .warm_least = 2});
    CHECK(prepared == worked);
    CHECK(timing.warm_up == 2);
    CHECK(timing.warm_up + timing.pieces == worked);
  }

  TEST_CASE("a runner runs again and again with the same result, and gives every gradient") {
    Stream stream(kCpu);
    const auto make = [](const std::string& name, Shape shape) {
      const NamedStream numbers(1, name);
      std::vector<double> values(static_cast<std::size_t>(shape.numel()));
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = numbers.normal(i);
      return Tensor::from(values, shape, DType::f32);
    };
    for (const std::int64_t keys : {20, 33}) {
      AttentionSize size{.batch = 2,
                         .queries = 20,
                         .keys = keys,
                         .heads = 4,
                         .kv_heads = 2,
                         .qk_dim = 8,
                         .v_dim = 12};
      AttentionRunner runner(*attention::find_attention("standard"), {}, size, Precision::fp32,
                             stream, make);
      const auto values = [&stream](const Tensor& x) { return x.to(kCpu, stream).values(); };
      runner.forward(false);
      const std::vector<double> o = values(runner.o());
      std::vector<double> dk;
      for (int again = 0; again < 2; ++again) {
        runner.forward(true);
        CHECK(values(runner.o()) == o);
        runner.backward();
        CHECK(runner.gradient("q").shape() == Shape{2, 4, 20, 8});
        CHECK(runner.gradient("v").shape() == Shape{2, 2, keys, 12});
        if (again > 0) CHECK(values(runner.gradient("k")) == dk);
        dk = values(runner.gradient("k"));
      }
      CHECK_FALSE(runner.gradient("q_global").defined());
      CHECK(runner.peak_bytes() > 0);
    }
  }

  TEST_CASE("a runner's method and gradients are as narrow as its projections") {
    Stream stream(kCpu);
    const auto make = [&stream](const std::string&, Shape shape) {
      return random_tensor(stream, shape, DType::f32);
    };
    const AttentionSize size{
        .batch = 2, .queries = 20, .keys = 20, .heads = 4, .kv_heads = 4, .qk_dim = 8, .v_dim = 12};
    for (const auto& [mode, width] : {std::pair("full", 4), {"qk_only", 12}}) {
      const config::Node options = config::parse(cat("{dim: 4, mode: ", mode, "}"), "test");
      AttentionRunner runner(*attention::find_attention("short"), options, size, Precision::fp32,
                             stream, make);
      runner.forward(true);
      CHECK(runner.o().shape() == Shape{2, 4, 20, width});
      runner.backward();
      CHECK(runner.gradient("q").shape() == Shape{2, 4, 20, 4});
      CHECK(runner.gradient("v").shape() == Shape{2, 4, 20, width});
    }
  }
}
