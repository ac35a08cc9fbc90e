#include "train/run_log.h"

#include <cmath>

#include <doctest/doctest.h>

#include "core/log.h"
#include "temporary.h"

using namespace fovea;
using namespace fovea::train;
using namespace fovea::test;

namespace {

StepRecord record() {
  StepRecord r;
  r.step = 1200;
  r.max_steps = 19073;
  r.tokens = 629145600;
  r.loss = 3.4121;
  r.grad_norm = 0.71;
  r.lr = 5.9e-4;
  r.data_hash = 0xABCull;
  return r;
}

}  // namespace

TEST_CASE("the step line reads as documented") {
  PerfRecord perf;
  perf.tokens_per_second = 612000;
  perf.mfu = 0.489;
  perf.peak_bytes = 41.2 * 1024 * 1024 * 1024;
  perf.data_fraction = 0.003;
  perf.eta_seconds = 2 * 3600 + 13 * 60;
  CHECK(step_line(record(), perf) ==
        "step 1200/19073 6.3% | loss 3.4121 | gnorm 0.71 | lr 5.9e-04 | 612k tok/s | 48.9% MFU | "
        "mem 41.2 GiB | "
        "data 0.3% | eta 2h13m");
}

TEST_CASE("metrics hold computed values only, numbers in their shortest form") {
  const TemporaryFolder folder;
  log::console(false);
  RunLog log(folder.path(), {}, {});
  log.step(record(), {});
  log.evaluation(1200, "validation", {{"loss", 0.1}, {"accuracy", NAN}});
  CHECK(contents(folder.path("metrics.jsonl")) ==
        "{\"step\":1200,\"tokens\":629145600,\"loss\":3.4121,\"grad_norm\":0.71,\"lr\":0.00059,"
        "\"data_hash\":\"0000000000000abc\"}\n"
        "{\"step\":1200,\"eval\":\"validation\",\"loss\":0.1,\"accuracy\":null}\n");
}

TEST_CASE("a scaled run also tells its scale and what it skipped") {
  const TemporaryFolder folder;
  log::console(false);
  RunLog log(folder.path(), {}, {});
  StepRecord r = record();
  r.scale = 65536;
  r.skipped = 3;
  log.step(r, {});
  CHECK(contents(folder.path("metrics.jsonl")).find("\"scale\":65536,\"skipped\":3") !=
        std::string::npos);
}

TEST_CASE("durations are short") {
  CHECK(human_duration(0.4) == "0s");
  CHECK(human_duration(59) == "59s");
  CHECK(human_duration(245) == "4m05s");
  CHECK(human_duration(7980) == "2h13m");
  CHECK(human_duration(90000) == "1d01h");
}
