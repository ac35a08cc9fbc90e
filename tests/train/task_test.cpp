#include "train/task.h"

#include <cmath>

#include <doctest/doctest.h>

#include "core/error.h"
#include "tiny_run.h"

using namespace fovea;
using namespace fovea::train;
using namespace fovea::test;

TEST_CASE("every registered task can be chosen, and a wrong name gets the nearest") {
  for (const TaskSpec& spec : task_specs())
    CHECK(find_task(spec.name) == &spec);
  CHECK(std::is_sorted(task_specs().begin(), task_specs().end(),
                       [](const TaskSpec& a, const TaskSpec& b) { return a.name < b.name; }));
  RunConfig config = tiny_config("unused");
  config.task = "lmm";
  CHECK_THROWS_WITH_AS(make_task(config), doctest::Contains("nearest is 'lm'"), ConfigError);
}

TEST_CASE("bits per byte are nats over bytes and ln 2, and only of bytes") {
  const TemporaryFolder temporary;
  overwrite(temporary.path("text"), std::string(4000, 'x'));
  const auto text =
      make_task(tiny_config("unused", {"data.kind=text", "data.path=" + temporary.path("text")}));
  Metrics metrics;
  metrics.loss_sum = 20 * std::log(2.0);
  metrics.targets = 10;
  metrics.sums["correct"] = 5;
  for (const auto& [key, number] : text->report(metrics))
    CHECK(key != "bits_per_byte");  // nobody counted them
  metrics.sums["bytes"] = 10;
  const Report report = text->report(metrics);
  const auto value = [&](std::string_view name) {
    for (const auto& [key, number] : report) {
      if (key == name) return number;
    }
    return -1.0;
  };
  CHECK(std::fabs(value("bits_per_byte") - 2) < 1e-15);
  CHECK(std::fabs(value("perplexity") - 4) < 1e-14);
  CHECK(value("accuracy") == 0.5);
  CHECK(value("targets") == 10);
  CHECK(value("bytes") == 10);
  Metrics counted;
  text->count(Split::validation, 3, counted);
  CHECK(counted.sums["bytes"] == 3 * 16);
  counted.sums.clear();
  make_task(tiny_config("unused"))->count(Split::validation, 3, counted);
  CHECK(counted.sums.empty());  // generated: no text
}

TEST_CASE("text is learned and evaluated in bits per byte") {
  const TemporaryFolder temporary;
  std::string words;
  while (words.size() < 6000)
    words += "the cat sat on the mat. ";
  overwrite(temporary.path("text"), words);
  const TrainResult result =
      run_tiny(temporary.path("run"), {"data.kind=text", "data.path=" + temporary.path("text"),
                                       "train.max_steps=30", "optim.lr=1e-2", "eval.interval=0"});
  for (const auto& [key, number] : result.metrics) {
    if (key == "bits_per_byte") CHECK(number < 4);  // uniform bytes: 8
  }
  CHECK(result.metrics.size() == 7);
}

TEST_CASE("text without held-out bytes trains, and says that nothing is evaluated") {
  const TemporaryFolder temporary;
  overwrite(temporary.path("text"), std::string(4000, 'x'));
  const std::vector<std::string> overrides = {"data.kind=text",
                                              "data.path=" + temporary.path("text"),
                                              "data.val_fraction=0", "train.max_steps=1"};
  CHECK_THROWS_AS(run_tiny(temporary.path("a"), overrides), IoError);  // eval.interval asks for it
  std::vector<std::string> never = overrides;
  never.push_back("eval.interval=0");
  CHECK(run_tiny(temporary.path("b"), never).metrics.empty());
}
