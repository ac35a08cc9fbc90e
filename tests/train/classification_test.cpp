// The task `classification`: what it learns, what it reports, and whose bits it does not depend on.

#include <cmath>

#include <doctest/doctest.h>

#include "core/error.h"
#include "data/listops_files.h"
#include "tiny_run.h"
#include "train/evaluate.h"
#include "train/text_model.h"
#include "train/trainer.h"

using namespace fovea;
using namespace fovea::train;
using namespace fovea::test;

namespace {

const std::vector<std::string> kListOps = {"task=classification",
                                           "data.kind=listops",
                                           "data.listops.train_examples=2000",
                                           "data.listops.validation_examples=200",
                                           "data.listops.test_examples=30",
                                           "data.listops.min_length=3",
                                           "data.listops.max_length=16",
                                           "data.listops.max_depth=2",
                                           "data.listops.max_args=4",
                                           "model.kind=encoder"};

std::vector<std::string> with(std::vector<std::string> more) {
  more.insert(more.begin(), kListOps.begin(), kListOps.end());
  return more;
}

double value_of(const Report& report, std::string_view name) {
  for (const auto& [key, value] : report) {
    if (key == name) return value;
  }
  return NAN;
}

}  // namespace

TEST_CASE("an encoder learns ListOps beyond what needs no model, however it pools") {
  for (const char* pool : {"model.pool=mean", "model.pool=cls", "model.pool=last"}) {
    Trainer trainer(
        tiny_config("unused", with({pool, "model.dropout=0", "model.init_std=0.1",
                                    "train.max_steps=150", "optim.lr=1e-2",
                                    "train.global_batch_size=32", "train.micro_batch_size=32"})),
        kCpu);
    for (int i = 0; i < 150; ++i)
      trainer.step();
    const Report report = trainer.evaluate(Split::validation, 0).report;
    INFO(pool);
    CHECK(value_of(report, "accuracy") > value_of(report, "accuracy_of_first_token") + 0.1);
    CHECK(value_of(report, "loss") < std::log(10.0));
  }
}

TEST_CASE("a classification's report has its counts, its error, and two answers to compare with") {
  Trainer trainer(tiny_config("unused", kListOps), kCpu);
  const Evaluation whole = trainer.evaluate(Split::validation, 0);
  const Report& report = whole.report;
  CHECK(value_of(report, "targets") == 200);
  const double accuracy = value_of(report, "correct") / 200;
  CHECK(value_of(report, "accuracy") == accuracy);
  CHECK(whole.watched == accuracy);
  CHECK(value_of(report, "accuracy_error") ==
        doctest::Approx(std::sqrt(accuracy * (1 - accuracy) / 200)));
  CHECK(value_of(report, "accuracy_of_always_0") > 0.05);
  CHECK(value_of(report, "accuracy_of_first_token") > value_of(report, "accuracy_of_always_0"));
  const Evaluation some = trainer.evaluate(Split::validation, 2);
  CHECK(some.examples == 16);
  CHECK(value_of(some.report, "targets") == 16);
  CHECK(value_of(some.report, "accuracy_of_always_0") <= 1);
  CHECK(value_of(trainer.evaluate(Split::test, 0).report, "targets") == 30);
}

TEST_CASE(
    "an encoder's run has the same bits on any threads, in any order, recomputed or resumed") {
  const TemporaryFolder temporary;
  const std::string straight = temporary.path("straight");
  run_tiny(straight, with({"train.threads=1"}));
  struct Variant {
    const char* name;
    std::vector<std::string> overrides;
  };
  for (const Variant& variant :
       {Variant{"threads", {"train.threads=3"}}, Variant{"order", {"train.micro_order=shuffle"}},
        Variant{"recompute", {"train.recompute=true"}}}) {
    INFO(variant.name);
    const std::string other = temporary.path(variant.name);
    run_tiny(other, with(variant.overrides));
    CHECK(weights(other) == weights(straight));
    CHECK(metrics(other) == metrics(straight));
  }
  const std::string stopped = temporary.path("stopped");
  run_tiny(stopped, with({"train.max_steps=7"}));
  run_tiny(stopped, kListOps);
  CHECK(weights(stopped) == weights(straight));
  CHECK(metrics(stopped) == metrics(straight));
}

TEST_CASE("scores of a classification do not depend on how many sequences are computed at once") {
  Trainer a(tiny_config("unused", kListOps), kCpu),
      b(tiny_config("unused", with({"eval.micro_batch_size=24"})), kCpu),
      c(tiny_config("unused", with({"eval.micro_batch_size=200", "train.threads=2"})), kCpu);
  const Evaluation whole = a.evaluate(Split::validation, 0);
  CHECK(b.evaluate(Split::validation, 0).metrics.loss_sum == whole.metrics.loss_sum);
  CHECK(c.evaluate(Split::validation, 0).metrics.loss_sum == whole.metrics.loss_sum);
  CHECK(whole.batches == 25);
}

TEST_CASE("a classifier's checkpoint is scored on other files, whole, and starts another run") {
  const TemporaryFolder temporary;
  const std::string path = temporary.path("run");
  const TrainResult result = run_tiny(path, kListOps);
  CHECK(evaluate(path).metrics == result.metrics);
  data::ListOpsConfig config{.train_examples = 20,
                             .validation_examples = 10,
                             .test_examples = 5,
                             .min_length = 3,
                             .max_length = 16,
                             .max_depth = 2,
                             .max_args = 4};
  data::listops::make_files(config, 3, 1, temporary.path("files"));
  const std::vector<std::string> folder = {"data.path=" + temporary.path("files")};
  CHECK(evaluate(path, folder).examples == 10);
  const std::vector<std::string> test = {folder[0], "data.split=test"};
  CHECK(evaluate(path, test).examples == 5);
  const std::vector<std::string> file = {"data.path=" + temporary.path("files") +
                                         "/basic_train.tsv"};
  CHECK(evaluate(path, file).examples == 20);

  const std::string tuned = temporary.path("tuned");
  run_tiny(tuned,
           with({"train.init_from=" + path, "optim.lr=0", "train.max_steps=1", "eval.interval=0"}));
  CHECK(weights(tuned) == weights(path));
}

TEST_CASE("a classifier writes no text, and the sizes of its classes have to fit") {
  const TemporaryFolder temporary;
  const std::string path = temporary.path("run");
  run_tiny(path, with({"train.max_steps=1", "eval.interval=0"}));
  CHECK_THROWS_WITH_AS(TextModel(path, "byte", 1),
                       doctest::Contains("classifies sequences and cannot continue a text"),
                       ConfigError);
  CHECK_THROWS_WITH_AS(Trainer(tiny_config("unused", with({"model.classes=9"})), kCpu),
                       "model.classes is 9, but the data has 10 labels", ConfigError);
  CHECK_NOTHROW(Trainer(tiny_config("unused", with({"model.classes=12"})), kCpu));
}

TEST_CASE("a task is refused with data or a network that it does not learn with") {
  const auto refused = [](const std::vector<std::string>& overrides, const std::string& what) {
    CHECK_THROWS_WITH_AS(tiny_config("unused", overrides), doctest::Contains(what.c_str()),
                         ConfigError);
  };
  refused({"task=classification", "model.kind=encoder"},
          "task is classification, which does not learn from data.kind markov");
  refused({"task=classification", "data.kind=listops"},
          "model.kind is decoder, but task classification needs encoder");
  refused({"model.kind=encoder"}, "model.kind is encoder, but task lm needs decoder");
  refused({"data.kind=listops"}, "task is lm, which does not learn from data.kind listops");
  refused(with({"data.listops.min_length=20", "data.listops.max_length=21"}),
          "data.listops.max_length is 21, but must be above data.listops.min_length (20) by 2");
  refused(with({"model.vocab_size=15"}), "model.vocab_size is 15, but the data has 16 token ids");
  refused(with({"model.vocab_size=16", "model.pool=cls"}),
          "model.vocab_size is 16, but the data has 17 token ids");
}
