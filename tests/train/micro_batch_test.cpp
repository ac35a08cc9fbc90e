#include "train/micro_batch.h"

#include <doctest/doctest.h>

#include "core/error.h"
#include "tiny_run.h"
#include "train/dry_run.h"

using namespace fovea;
using namespace fovea::train;
using namespace fovea::test;

namespace {

using Overrides = std::vector<std::string>;

RunConfig automatic(Overrides more = {}) {
  more.insert(more.begin(), "train.micro_batch_size=auto");
  return tiny_config("unused", more);
}

// Of which a prediction for that size fills all that it may.
std::size_t just_enough(const RunConfig& config, std::int64_t size, int ranks) {
  const std::size_t peak = dry_run(with_micro_batch(config, size), ranks).memory.total();
  return static_cast<std::size_t>(static_cast<double>(peak) / kFillable) + 2;
}

constexpr std::size_t kPlenty = std::size_t{1} << 40;

}  // namespace

TEST_CASE("auto is the largest power-of-two part of a rank's share whose predicted peak fits") {
  const RunConfig config = automatic({"model.block_size=512"});
  CHECK(fitting_micro_batch(config, 1, kPlenty) == 16);
  for (const std::int64_t size : {8, 4, 2}) {
    const std::size_t enough = just_enough(config, size, 1);
    CHECK(fitting_micro_batch(config, 1, enough) == size);
    CHECK(fitting_micro_batch(config, 1, enough - 8) == size / 2);
  }
}

TEST_CASE("several ranks divide the global batch among them") {
  CHECK(fitting_micro_batch(automatic(), 2, kPlenty) == 8);
  CHECK(fitting_micro_batch(automatic(), 16, kPlenty) == 1);
  const RunConfig config = automatic({"model.block_size=128", "distributed.zero=1"});
  CHECK(fitting_micro_batch(config, 2, just_enough(config, 4, 2)) == 4);
  const RunConfig uneven =
      automatic({"train.global_batch_size=12", "distributed.reproducible=false"});
  CHECK(fitting_micro_batch(uneven, 5, kPlenty) == 2);
  CHECK(fitting_micro_batch(uneven, 8, kPlenty) == 1);
}

TEST_CASE("where no micro-batch fits, auto says what the least would take") {
  std::string message;
  try {
    fitting_micro_batch(automatic({"model.block_size=512"}), 1, 1000);
  } catch (const OutOfMemory& e) {
    message = e.what();
  }
  CHECK(message.starts_with("train.micro_batch_size: auto: none fits; the least is "));
  CHECK(message.find(" with 1 sequences at once, but there are 1000 B, of which 92 %") !=
        std::string::npos);
}

TEST_CASE("auto is no number until one is decided, and reads back as itself") {
  const RunConfig config = automatic();
  CHECK(config.train.micro_batch_auto);
  CHECK_FALSE(config.train.micro_batch_given);
  CHECK(config.resolved.get_string("train.micro_batch_size") == "auto");
  CHECK(RunConfig::from(config.resolved).train.micro_batch_auto);
  CHECK_THROWS_AS(automatic({"train.micro_batch_size=all"}), ConfigError);
}

TEST_CASE("the decided number is recorded in the configuration") {
  const RunConfig config = with_fitting_micro_batch(automatic(), alone(), kCpu, "");
  CHECK(config.train.micro_batch_size == 16);
  CHECK_FALSE(config.train.micro_batch_auto);
  CHECK(config.resolved.get_int("train.micro_batch_size") == 16);
  CHECK(RunConfig::from(config.resolved).train.micro_batch_size == 16);
  CHECK(with_fitting_micro_batch(automatic({"train.device=cpu"}), 2).train.micro_batch_size == 8);
}

TEST_CASE("a number that was given is left alone") {
  const RunConfig config = tiny_config("unused", {"train.micro_batch_size=4"});
  CHECK(with_fitting_micro_batch(config, alone(), kCpu, "").train.micro_batch_size == 4);
  CHECK(with_fitting_micro_batch(config, 2).train.micro_batch_size == 4);
}

TEST_CASE("a run that goes on keeps the number of its checkpoint") {
  const std::string before = tiny_config("unused", {"train.micro_batch_size=2"}).resolved.yaml();
  const RunConfig config = with_fitting_micro_batch(automatic(), alone(), kCpu, before);
  CHECK(config.train.micro_batch_size == 2);
  CHECK(config.resolved.get_int("train.micro_batch_size") == 2);
}

TEST_CASE("a machine tells how much memory a process may use, divided among processes") {
  const std::size_t whole = usable_memory(kCpu, 1);
  CHECK(whole > (std::size_t{1} << 26));
  CHECK(usable_memory(kCpu, 1000) < whole / 100);
}
