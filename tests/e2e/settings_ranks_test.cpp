// What ends, keeps, freezes or computes again does the same on several ranks as on one.

#include <filesystem>
#include <string>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "run_ranks.h"

using namespace fovea;
using namespace fovea::test;

namespace {

// Too large steps, after which the loss gets worse now and then.
const Words kRough{"optim.lr=0.1",    "sched.kind=constant", "sched.warmup_steps=0",
                   "eval.interval=5", "eval.patience=1",     "train.max_steps=200",
                   "log.interval=1"};

// The record of a run that ended well.
nlohmann::json record_of(const Finished& run) {
  REQUIRE_MESSAGE(run.code == 0, run.err);
  return nlohmann::json::parse(run.out);
}

std::string newest(const std::string& run) {
  return bytes_of(run + "/ckpt/latest/model.safetensors");
}

void check_same_end(const std::string& run, const std::string& reference) {
  CHECK(newest(run) == newest(reference));
  CHECK(bytes_of(run + "/metrics.jsonl") == bytes_of(reference + "/metrics.jsonl"));
  CHECK(names_in(run + "/ckpt") == names_in(reference + "/ckpt"));
}

// The two ways of two ranks.
const Words kPlain{"--nproc", "2"}, kZero{"--nproc", "2", "distributed.zero=1"};

}  // namespace

TEST_CASE("early stopping ends two ranks where it ends one, and keeps the same best checkpoint") {
  const TempFolder folder;
  const Words keep{"ckpt.keep_best=true", "ckpt.keep_last=1", "--json"};
  const auto one = record_of(train(folder / "one", kRough + keep));
  CHECK(one["ending"] == "early_stop");
  CHECK(one["step"] < 200);
  // The best one was saved out of turn, before the last.
  const Words kept = names_in(folder / "one/ckpt");
  CHECK(kept.size() == 3);
  for (const Words& ranks : {kPlain, kZero}) {
    const std::string run = folder / ranks.back();
    const auto two = record_of(train(run, ranks + kRough + keep));
    CHECK(two["ending"] == "early_stop");
    CHECK(two["step"] == one["step"]);
    CHECK(two["metrics"] == one["metrics"]);
    check_same_end(run, folder / "one");
    for (const std::string& name : kept) {
      const std::string model = cat("/ckpt/", name, "/model.safetensors");
      CHECK(bytes_of(run + model) == bytes_of(folder / "one" + model));
    }
  }
}

TEST_CASE("train.max_time ends both ranks after one step, in the bytes of a run of so many steps") {
  const TempFolder folder;
  const Words constant{"sched.kind=constant", "eval.interval=0", "--json"};
  const auto timed = record_of(train(
      folder / "timed", kPlain + constant + Words{"train.max_time=1", "train.max_steps=1000000"}));
  CHECK(timed["ending"] == "max_time");
  const int steps = timed["step"].get<int>();
  CHECK(steps > 1);
  const auto counted =
      record_of(train(folder / "counted", constant + Words{cat("train.max_steps=", steps)}));
  CHECK(counted["metrics"] == timed["metrics"]);
  check_same_end(folder / "timed", folder / "counted");
}

TEST_CASE("frozen parameters stay as they are on two ranks, and the others move as on one") {
  const TempFolder folder;
  const Words frozen{"train.freeze=[wte.*, blocks.0.*]", "train.max_steps=20"};
  REQUIRE(train(folder / "one", frozen).code == 0);
  REQUIRE(train(folder / "free", {"train.max_steps=20"}).code == 0);
  CHECK(newest(folder / "one") != newest(folder / "free"));
  for (const Words& ranks : {kPlain, kZero}) {
    const std::string run = folder / ranks.back();
    const Finished done = train(run, ranks + frozen);
    REQUIRE_MESSAGE(done.code == 0, done.err);
    check_same_end(run, folder / "one");
  }
}

TEST_CASE("recomputation on two ranks changes no bit") {
  const TempFolder folder;
  REQUIRE(train(folder / "one", {"train.max_steps=20"}).code == 0);
  for (const Words& ranks : {kPlain, kZero}) {
    const std::string run = folder / ranks.back();
    const Finished done = train(run, ranks + Words{"train.recompute=true", "train.max_steps=20"});
    REQUIRE_MESSAGE(done.code == 0, done.err);
    check_same_end(run, folder / "one");
  }
}

TEST_CASE("a learned S is drawn, pruned and regrown on two ranks as on one") {
  const TempFolder folder;
  const Words learned{
      "model.attention={kind: spa, pattern: learn, proj_dim: 8, prune_every: 4, t0: 2, t1: 12, "
      "dense_shadow: false, regrow: grad, gate: output}",
      "train.max_steps=20"};
  REQUIRE(train(folder / "one", learned).code == 0);
  CHECK(bytes_of(folder / "one/metrics.jsonl").find("method.density") != std::string::npos);
  for (const Words& ranks : {kPlain, kZero}) {
    const std::string run = folder / ranks.back();
    const Finished done = train(run, ranks + learned);
    REQUIRE_MESSAGE(done.code == 0, done.err);
    check_same_end(run, folder / "one");
  }
}
