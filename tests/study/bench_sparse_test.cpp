// Where sparse products pay, from times made by hand.

#include "study/bench_sparse.h"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

using namespace fovea::study;

namespace {

// A hundred columns: `zeros` of them are not entries.
SparseTime at(int zeros, double sparse_ms, double dense_ms, std::int64_t out = 100) {
  return {.rows = 8,
          .in = 1,
          .out = out,
          .entries = out - zeros,
          .sparse_ms = sparse_ms,
          .dense_ms = dense_ms,
          .gpu = {}};
}

}  // namespace

TEST_SUITE("study") {
  TEST_CASE("the break-even lies where the times cross") {
    const std::vector<SparseTime> times = {at(70, 4, 1), at(80, 3, 1), at(90, 0, 1)};
    CHECK(break_even(times) == doctest::Approx(0.8 + 0.1 * 2 / 3));
    // What is slower again later counts as slower before it.
    const std::vector<SparseTime> wavy = {at(70, 0.5, 1), at(80, 2, 1), at(90, 0, 1)};
    CHECK(break_even(wavy) == doctest::Approx(0.85));
  }

  TEST_CASE("there is no break-even where one product always wins") {
    const std::vector<SparseTime> slow = {at(70, 4, 1), at(90, 2, 1)}, fast = {at(70, 0.5, 1)};
    CHECK_FALSE(break_even(slow));
    CHECK(break_even(fast) == 0);
    CHECK_FALSE(break_even({}));
  }

  TEST_CASE("table and record say the break-even of each size") {
    const std::vector<SparseTime> times = {at(70, 4, 1), at(90, 0.5, 1), at(100, 3, 1, 200)};
    const auto json = nlohmann::json::parse(json_of(times));
    REQUIRE(json.size() == 3);
    CHECK(json[0]["break_even"] == json[1]["break_even"]);
    CHECK(json[0]["break_even"].get<double>() == doctest::Approx(0.7 + 0.2 * 3 / 3.5));
    CHECK(json[1]["sparsity"].get<double>() == doctest::Approx(0.9));
    CHECK(json[2]["break_even"].is_null());
    const std::string text = text_of(times);
    CHECK(text.find("equal at about 87.1 % zeros") != std::string::npos);
    CHECK(text.find("the dense product is faster at all of them") != std::string::npos);
  }
}
