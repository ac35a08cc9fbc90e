// Kernel tables and traces, from records made by hand.

#include "train/profile.h"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "train/temporary.h"
#include "train/tiny_run.h"

using namespace fovea;
using namespace fovea::train;

namespace {

const std::vector<KernelRecord> kRecords = {
    {"gemm", 1000, 5000, 7}, {"norm", 5000, 6000, 7}, {"gemm", 8000, 11000, 7}};

}  // namespace

TEST_SUITE("train") {
  TEST_CASE("a profile adds the calls of a kernel, largest first") {
    const Profile profile = summed(kRecords, 2);
    REQUIRE(profile.rows.size() == 2);
    CHECK(profile.rows[0].name == "gemm");
    CHECK(profile.rows[0].calls == 2);
    CHECK(profile.rows[0].ms == doctest::Approx(0.007));
    CHECK(profile.rows[0].share == doctest::Approx(0.875));
    CHECK(profile.span_ms == doctest::Approx(0.010));
    CHECK(profile.busy_ms == doctest::Approx(0.008));
    CHECK(profile_text(profile).find("2 steps, 0.005 ms each, 0.004 ms of it at work") == 0);
    CHECK(nlohmann::json::parse(profile_json(profile))["kernels"][1]["kernel"] == "norm");
  }

  TEST_CASE("a trace holds every record, in microseconds from the first") {
    const auto trace = nlohmann::json::parse(chrome_trace(kRecords));
    REQUIRE(trace["traceEvents"].size() == 3);
    CHECK(trace["traceEvents"][2]["ts"] == 7.0);
    CHECK(trace["traceEvents"][2]["dur"] == doctest::Approx(3.0));
    CHECK(trace["traceEvents"][2]["tid"] == 7);
    CHECK(nlohmann::json::parse(chrome_trace({}))["traceEvents"].empty());
  }

  TEST_CASE("a kernel is called what its source calls it") {
    CHECK(short_kernel_name("_ZN5fovea4cuda12_GLOBAL__N_111norm_kernelIfLi3EEEvPKT_i") ==
          "norm_kernel<float, 3>");
    CHECK(short_kernel_name("sm90_xmma_gemm_bf16") == "sm90_xmma_gemm_bf16");
    CHECK(short_kernel_name(nullptr) == "unnamed");
  }

  TEST_CASE("a profile of the CPU is refused") {
    const test::TemporaryFolder folder;
    CHECK_THROWS_WITH_AS(profile(test::tiny_config(folder.path(), {"train.device=cpu"}), 2),
                         "--profile records kernels of a GPU, and this run computes on the cpu",
                         DeviceError);
  }
}
