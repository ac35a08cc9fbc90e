// Ten losses of a fixed tiny run: nothing between the seed and the update may move unnoticed.

#include <cmath>
#include <fstream>
#include <string>

#include <doctest/doctest.h>

#include "config/yaml.h"
#include "core/text.h"
#include "train/trainer.h"

using namespace fovea;
using namespace fovea::train;

namespace {

// Instruction sets and BLAS cores add in different orders; ten steps of a tiny model do not amplify
// that.
constexpr double kOtherOrder = 1e-5;

std::string golden(const char* name) {
  return cat(FOVEA_SOURCE_DIR, "/tests/e2e/golden/", name);
}

}  // namespace

TEST_CASE("the first ten losses are the recorded ones") {
  Trainer trainer(RunConfig::from(config::load(golden("tiny_lm.yaml"))), kCpu);
  std::ifstream file(golden("tiny_lm.losses"));
  std::string computed;
  int steps = 0;
  for (double expected = 0; file >> expected; ++steps) {
    const double loss = trainer.step().loss;
    computed += cat(loss, "\n");
    CHECK(std::fabs(loss / expected - 1) < kOtherOrder);
  }
  INFO("computed:\n" << computed);
  CHECK(steps == 10);
}
