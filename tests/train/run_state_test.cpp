#include "train/run_state.h"

#include <doctest/doctest.h>

#include "core/error.h"

using namespace fovea;
using namespace fovea::train;

namespace {

RunState example() {
  RunState s;
  s.step = 1200;
  s.tokens = 123456789012;
  s.seed = 9007199254740991;
  s.data_hash = 0xFEDCBA9876543210ull;
  s.data_fingerprint = "0123456789abcdef";
  s.scaler.scale = 32768;
  s.scaler.good_steps = 17;
  s.scaler.adam_count = 1198;
  s.scaler.skipped = 2;
  s.best = {true, 0.1 + 0.2, 1100, 3};
  s.seconds = 1.0 / 3;
  s.metrics = {77, 0x0123456789ABCDEFull};
  s.perf = {5, 42};
  s.arithmetic = {"avx2", "Haswell", "fp32"};
  s.version = "0.1.0";
  s.config_yaml = "seed: 1\nname: \"a \\\"b\\\"\"\n";
  return s;
}

}  // namespace

TEST_CASE("a state is read back to the bit") {
  const RunState a = example(), b = parse_state(state_json(a), "state.json");
  CHECK(state_json(b) == state_json(a));
  CHECK(b.best.value == a.best.value);
  CHECK(b.seconds == a.seconds);
  CHECK(b.data_hash == a.data_hash);
  CHECK(b.data_fingerprint == a.data_fingerprint);
  CHECK(b.metrics.xxh3 == a.metrics.xxh3);
  CHECK(b.scaler.adam_count == 1198);
  CHECK(b.config_yaml == a.config_yaml);
}

TEST_CASE("a state without a best evaluation is read back without one") {
  RunState s = example();
  s.best = {};
  CHECK_FALSE(parse_state(state_json(s), "state.json").best.any);
}

TEST_CASE("anything else is a checkpoint error that names the file") {
  for (const char* text : {"", "{}", "[1]", "{\"schema\":2}", "not json"}) {
    CHECK_THROWS_WITH_AS(parse_state(text, "some/state.json"), doctest::Contains("some/state.json"),
                         CheckpointError);
  }
}
