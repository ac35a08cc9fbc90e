#include "data/eval_windows.h"

#include <algorithm>

#include <doctest/doctest.h>

#include "core/error.h"

using namespace fovea;
using namespace fovea::data;

TEST_CASE("every target is scored by exactly one window, with enough context") {
  for (const std::int64_t length : {1, 2, 3, 7, 8, 9, 15, 16, 17, 64, 65, 100}) {
    for (const std::int64_t n : {1, 2, 8, 16, 64, 200}) {
      for (const std::int64_t s : {std::int64_t{1}, n / 3, n / 2, n - 1, n}) {
        if (s < 1) continue;
        for (const bool prefix : {false, true}) {
          const EvalWindows windows({length, 0, length + 3}, {n, s, prefix});
          const std::int64_t lengths[] = {length, 0, length + 3};
          std::vector<std::vector<int>> scored;
          for (const std::int64_t l : lengths)
            scored.emplace_back(static_cast<std::size_t>(l + (prefix ? 1 : 0)), 0);
          std::int64_t last = 0;
          for (std::int64_t w = 0; w < windows.size(); ++w) {
            const EvalWindows::Window at = windows.at(w);
            REQUIRE(at.inputs >= 1);
            REQUIRE(at.inputs <= n);
            REQUIRE(at.scored() >= 1);
            REQUIRE(at.stream >= last);
            last = at.stream;
            auto& y = scored[static_cast<std::size_t>(at.stream)];
            REQUIRE(at.first + at.inputs < static_cast<std::int64_t>(y.size()));
            for (std::int64_t i = at.skipped; i < at.inputs; ++i) {
              ++y[static_cast<std::size_t>(at.first + i + 1)];
              if (at.first > 0) REQUIRE(i + 1 > n - s);  // tokens before the target
            }
          }
          std::int64_t targets = 0, unscored = 0;
          for (const auto& y : scored) {
            for (std::size_t i = 1; i < y.size(); ++i)
              REQUIRE(y[i] == 1);
            targets += std::max<std::int64_t>(0, static_cast<std::int64_t>(y.size()) - 1);
            unscored += !prefix && !y.empty();
          }
          CHECK(windows.targets() == targets);
          CHECK(windows.unscored() == unscored);
        }
      }
    }
  }
}

TEST_CASE("no more windows are made than the stream needs") {
  CHECK(EvalWindows({9}, {8, 8, false}).size() == 1);
  CHECK(EvalWindows({9}, {8, 8, true}).size() == 2);
  CHECK(EvalWindows({9}, {8, 4, false}).size() == 1);
  CHECK(EvalWindows({10}, {8, 4, false}).size() == 2);
  CHECK(EvalWindows({13}, {8, 4, false}).size() == 2);
  CHECK(EvalWindows({14}, {8, 4, false}).size() == 3);
  CHECK(EvalWindows({1}, {8, 4, false}).size() == 0);
  CHECK(EvalWindows({}, {8, 4, false}).size() == 0);
}

TEST_CASE("a stride that would leave tokens out is refused") {
  CHECK_THROWS_AS(EvalWindows({9}, {8, 9, false}), ConfigError);
  CHECK_THROWS_AS(EvalWindows({9}, {8, 0, false}), ConfigError);
}
