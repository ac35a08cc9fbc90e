// Runs of several processes on the CPU, as a user starts them.

#include <csignal>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "run_ranks.h"

using namespace fovea;
using namespace fovea::test;

namespace {

// step -> micro-batches, of one rank's log.
std::map<int, std::vector<int>> micro_batches(const std::string& log) {
  std::map<int, std::vector<int>> out;
  std::istringstream lines(bytes_of(log));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t at = line.find(" step "), list = line.find(": micro-batches ");
    if (at == std::string::npos || list == std::string::npos) continue;
    std::istringstream numbers(line.substr(list + 16));
    std::vector<int>& own = out[std::stoi(line.substr(at + 6))];
    for (int micro = 0; numbers >> micro;)
      own.push_back(micro);
  }
  return out;
}

}  // namespace

TEST_CASE(
    "one, two and four ranks end in the same bytes, ZeRO or not, stopped and resumed or not") {
  const TempFolder folder;
  const std::string one = folder / "one";
  REQUIRE(train(one, {"train.max_steps=30"}).code == 0);
  for (const char* ranks : {"2", "4"}) {
    for (const char* zero : {"0", "1"}) {
      CAPTURE(ranks);
      CAPTURE(zero);
      const std::string run = folder / cat("ranks", ranks, zero);
      const Finished done =
          train(run, {"--nproc", ranks, cat("distributed.zero=", zero), "train.max_steps=30"});
      REQUIRE_MESSAGE(done.code == 0, done.err);
      check_equal(run, one, "00000030");
      // The logs say who computed what: every micro-batch once.
      std::map<int, std::multiset<int>> all;
      for (int rank = 0; rank < std::stoi(ranks); ++rank) {
        for (const auto& [step, own] : micro_batches(cat(run, "/logs/rank_000", rank, ".log")))
          all[step].insert(own.begin(), own.end());
      }
      CHECK(all.size() == 30);
      for (const auto& [step, seen] : all)
        CHECK(seen == std::multiset<int>{0, 1, 2, 3, 4, 5, 6, 7});
    }
  }
  // Longer and longer, on four, two and one.
  const std::string run = folder / "fewer";
  const Words schedule{"sched.kind=constant"};
  const auto with = [&](const Words& more) { return train(run, schedule + more); };
  CHECK(with({"--nproc", "4", "train.max_steps=10"}).code == 0);
  CHECK(with({"--nproc", "2", "train.max_steps=20", "distributed.zero=1"}).code == 0);
  CHECK(with({"train.max_steps=30"}).code == 0);
  const std::string straight = folder / "straight";
  REQUIRE(train(straight, {"sched.kind=constant", "train.max_steps=30"}).code == 0);
  check_equal(run, straight, "00000030");
}

TEST_CASE("a killed rank is named, and the run goes on from its last checkpoint") {
  const TempFolder folder;
  const std::string run = folder / "killed", undisturbed = folder / "undisturbed";
  bool killed = false;
  const When when{"step 20/", [&](pid_t launcher) {
                    const pid_t rank = rank_of(launcher, 1);
                    killed = rank > 0 && ::kill(rank, SIGKILL) == 0;
                  }};
  const Finished done =
      train(run, {"--nproc", "2", "--max-restarts", "1", "train.max_steps=40"}, when);
  CHECK(killed);
  REQUIRE_MESSAGE(done.code == 0, done.err);
  CHECK_MESSAGE(done.err.find("rank 1 (host ") != std::string::npos, done.err);
  REQUIRE(train(undisturbed, {"train.max_steps=40"}).code == 0);
  check_equal(run, undisturbed, "00000040");
}

TEST_CASE("a request to stop at any rank ends all, saved once and resumable") {
  const TempFolder folder;
  const std::string run = folder / "stopped", undisturbed = folder / "undisturbed";
  const When when{"step 20/", [&](pid_t launcher) { ::kill(rank_of(launcher, 1), SIGTERM); }};
  const Finished stopped = train(run, {"--nproc", "2", "train.max_steps=400"}, when);
  CHECK_MESSAGE(stopped.code == 75, stopped.err);
  const Words rest{"train.max_steps=400", "--nproc", "2"};
  REQUIRE(train(run, rest).code == 0);
  REQUIRE(train(undisturbed, {"train.max_steps=400"}).code == 0);
  check_equal(run, undisturbed, "00000400");
}

TEST_CASE("what cannot be divided is refused before anything is computed") {
  const TempFolder folder;
  const Finished three = train(folder / "three", {"--nproc", "3"});
  CHECK(three.code == 2);
  CHECK(three.err.find("distributed.reproducible") != std::string::npos);
  const auto refusal = [&](const char* ranks, const char* micro) {
    const Finished run = train(folder / "many", {"--nproc", ranks, micro});
    CHECK(run.code == 2);
    return run.err;
  };
  CHECK(refusal("2", "train.micro_batch_size=16") ==
        "error: train.micro_batch_size: a global batch of 16 in micro-batches of 16 has 1, but "
        "there are 2 processes, and each needs one: lower it to 8 or less, or start at most 1\n");
  CHECK(contains(refusal("16", "train.micro_batch_size=2"),
                 "there are 16 processes, and each needs one: lower it to 1, or start at most 8"));
  CHECK(contains(refusal("32", "train.micro_batch_size=1"),
                 "each needs one: raise train.global_batch_size, or start at most 16"));
  CHECK(contains(refusal("2", "distributed.timeout=0"),
                 "distributed.timeout is 0, but must be a duration (300, 5m, 1h30m) in [1, 86400] "
                 "seconds"));
}

TEST_CASE("in any order three ranks and an uneven share are fine") {
  const TempFolder folder;
  const std::string run = folder / "uneven";
  const Finished done =
      train(run, {"--nproc", "3", "distributed.reproducible=false", "train.max_steps=12"});
  REQUIRE_MESSAGE(done.code == 0, done.err);
  std::multiset<int> seen;
  for (int rank = 0; rank < 3; ++rank) {
    const auto own = micro_batches(cat(run, "/logs/rank_000", rank, ".log"));
    seen.insert(own.at(12).begin(), own.at(12).end());
  }
  CHECK(seen == std::multiset<int>{0, 1, 2, 3, 4, 5, 6, 7});
}
