// The task `niah`: exact match of a needle's value, by length and depth.

#include <cmath>

#include <doctest/doctest.h>

#include "core/error.h"
#include "tiny_run.h"
#include "train/evaluate.h"
#include "train/trainer.h"

using namespace fovea;
using namespace fovea::train;
using namespace fovea::test;

namespace {

const std::vector<std::string> kNiah = {
    "task=niah", "data.kind=niah", "data.niah.train_examples=500",
    "data.niah.validation_examples=12", "data.niah.test_examples=5"};

std::vector<std::string> with(std::vector<std::string> more) {
  more.insert(more.begin(), kNiah.begin(), kNiah.end());
  return more;
}

double value_of(const Report& report, std::string_view name) {
  for (const auto& [key, value] : report) {
    if (key == name) return value;
  }
  return NAN;
}

std::vector<std::string> names_of(const Report& report) {
  std::vector<std::string> out;
  for (const auto& [key, value] : report)
    out.push_back(key);
  return out;
}

}  // namespace

TEST_CASE("needles are scored at the last position, over all ids and over those of values") {
  Trainer trainer(tiny_config("unused", kNiah), kCpu);
  const Report report = trainer.evaluate(Split::validation, 0).report;
  CHECK(names_of(report) == std::vector<std::string>{"loss", "accuracy", "accuracy_error",
                                                     "accuracy_of_all_ids", "accuracy_of_values",
                                                     "targets"});
  CHECK(value_of(report, "targets") == 12);
  CHECK(value_of(report, "loss") == doctest::Approx(std::log(179.0)).epsilon(0.1));  // untrained
  CHECK(value_of(report, "accuracy_of_values") >= value_of(report, "accuracy_of_all_ids"));
}

TEST_CASE("the test reports recall for each length and each depth") {
  Trainer trainer(
      tiny_config("unused", with({"model.position=none", "data.niah.test_lengths=[8, 32, 1024]",
                                  "data.niah.depths=[0.1, 0.9]"})),
      kCpu);
  const Evaluation test = trainer.evaluate(Split::test, 0);
  CHECK(test.examples == 30);
  CHECK(value_of(test.report, "targets") == 30);
  const std::vector<std::string> names = names_of(test.report);
  CHECK(std::vector<std::string>(names.begin() + 6, names.end()) ==
        std::vector<std::string>{"recall_8", "recall_8_depth_0.1", "recall_8_depth_0.9",
                                 "recall_32", "recall_32_depth_0.1", "recall_32_depth_0.9",
                                 "recall_1024", "recall_1024_depth_0.1", "recall_1024_depth_0.9"});
  double all = 0;
  for (const char* length : {"8", "32", "1024"}) {
    const std::string name = std::string("recall_") + length;
    const double shallow = value_of(test.report, name + "_depth_0.1"),
                 deep = value_of(test.report, name + "_depth_0.9");
    CHECK(value_of(test.report, name) == doctest::Approx((shallow + deep) / 2));
    all += value_of(test.report, name) / 3;
  }
  CHECK(value_of(test.report, "accuracy") == doctest::Approx(all));
}

TEST_CASE("a model that learned its needles finds them, and the scores say at which depth") {
  // One needle among two fillers: the value stands one, two or three tokens before the query.
  Trainer trainer(
      tiny_config("unused",
                  with({"model.block_size=6", "data.niah.train_examples=100000",
                        "data.niah.validation_examples=200", "model.dropout=0",
                        "model.init_std=0.1", "train.global_batch_size=64",
                        "train.micro_batch_size=64", "train.max_steps=300", "optim.lr=1e-2"})),
      kCpu);
  for (int i = 0; i < 300; ++i)
    trainer.step();
  CHECK(value_of(trainer.evaluate(Split::validation, 0).report, "accuracy") > 0.9);
  const Report test = trainer.evaluate(Split::test, 0).report;
  CHECK(value_of(test, "recall_6_depth_0.5") > 0.5);
}

TEST_CASE("a decoder's needles have the same scores in batches of any size") {
  const std::vector<std::string> lengths = {
      "model.position=rope", "data.niah.test_lengths=[12, 16, 40]", "data.niah.test_examples=40"};
  Trainer a(tiny_config("unused", with(lengths)), kCpu);
  std::vector<std::string> more = lengths;
  more.push_back("eval.micro_batch_size=64");
  more.push_back("train.threads=2");
  Trainer b(tiny_config("unused", with(more)), kCpu);
  const Evaluation x = a.evaluate(Split::test, 0), y = b.evaluate(Split::test, 0);
  CHECK(x.metrics.loss_sum == y.metrics.loss_sum);
  CHECK(x.report == y.report);
  CHECK(y.batches < x.batches);
}

TEST_CASE("a checkpoint is tested at other lengths than it was trained with") {
  const TemporaryFolder temporary;
  const std::string path = temporary.path("run");
  run_tiny(path, with({"train.max_steps=2", "eval.interval=0"}));
  const std::vector<std::string> shorter = {"data.split=test", "data.niah.test_lengths=[8,16]"};
  CHECK(value_of(evaluate(path, shorter).metrics, "targets") == 2 * 5 * 5);
  std::vector<std::string> longer = {"data.split=test", "data.niah.test_lengths=[32]"};
  CHECK_THROWS_WITH_AS(evaluate(path, longer),
                       doctest::Contains("but learned positions end at model.block_size (16): give "
                                         "model.interpolate_positions"),
                       ConfigError);
  longer.push_back("model.interpolate_positions=true");
  CHECK(value_of(evaluate(path, longer).metrics, "targets") == 25);
}

TEST_CASE("both layouts and both generators train") {
  for (const auto& how :
       std::vector<std::vector<std::string>>{{"data.niah.layout=marked", "data.niah.decoys=2"},
                                             {"data.niah.generator=reference"},
                                             {"data.niah.needles=3", "data.niah.depths=[]"}}) {
    Trainer trainer(tiny_config("unused", with(how)), kCpu);
    CHECK(std::isfinite(trainer.step().loss));
    const Report report = trainer.evaluate(Split::test, 0).report;
    CHECK(value_of(report, "recall_16") == value_of(report, "accuracy"));
  }
}

TEST_CASE("needles that sequences have no room for are refused while the configuration is read") {
  const auto refused = [](const std::vector<std::string>& overrides, const std::string& what) {
    CHECK_THROWS_WITH_AS(tiny_config("unused", with(overrides)), doctest::Contains(what.c_str()),
                         ConfigError);
  };
  refused({"data.niah.needles=8"},
          "data.niah.needles is 8, which needs 18 tokens, but there are sequences of 16");
  refused({"data.niah.needles=7", "data.niah.test_lengths=[12]"},
          "which needs 16 tokens, but there are sequences of 12");
  refused({"data.niah.layout=marked", "data.niah.decoys=4"},
          "data.niah.decoys is 4, which needs 18 tokens");
  refused({"data.niah.test_lengths=[12.5]"}, "data.niah.test_lengths has 12.5");
  refused({"model.vocab_size=178"}, "model.vocab_size is 178, but the data has 179 token ids");
}
