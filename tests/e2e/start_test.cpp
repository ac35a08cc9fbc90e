// Starts of several processes that go wrong by the way they were started, and stops that come
// early.

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include <doctest/doctest.h>
#include <sys/stat.h>

#include "run_ranks.h"

using namespace fovea;
using namespace fovea::test;

namespace {

// Says "here" when it is about to become the command.
Words announced(const Words& command) {
  return Words{"sh", "-c", "echo here >&2; exec \"$@\"", "sh"} + command;
}

// Waits for it, a while.
bool catches_sigterm(pid_t process) {
  for (int i = 0; i < 5000; ++i) {
    std::ifstream status(cat("/proc/", process, "/status"));
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("SigCgt:") &&
          (std::stoull(line.substr(7), nullptr, 16) >> (SIGTERM - 1) & 1) != 0)
        return true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

}  // namespace

TEST_CASE("ranks started with different verbs are told which, and end as a mistake of usage") {
  const TempFolder folder;
  const std::string run = folder / "run";
  REQUIRE(train(run, {"train.max_steps=2"}).code == 0);
  const int port = free_port();
  for (const Finished& rank :
       run_together({as_rank(0, 2, port, training(run, {"train.max_steps=4"})),
                     as_rank(1, 2, port, {FOVEA_BINARY, "eval", run})})) {
    CHECK(rank.code == 2);
    CHECK_MESSAGE(contains(rank.err, "rank 1 (host "), rank.err);
    CHECK(contains(rank.err, "was started as 'fovea eval', but rank 0 as 'fovea train'"));
  }
}

TEST_CASE("ranks that evaluate with other settings are told which") {
  const TempFolder folder;
  const std::string run = folder / "run";
  REQUIRE(train(run, {"train.max_steps=2"}).code == 0);
  const int port = free_port();
  for (const Finished& rank :
       run_together({as_rank(0, 2, port, {FOVEA_BINARY, "eval", run}),
                     as_rank(1, 2, port,
                             {FOVEA_BINARY, "eval", run, "eval.max_batches=3", "--losses",
                              folder / "losses"})})) {
    CHECK(rank.code == 2);
    CHECK_MESSAGE(contains(rank.err, "--losses is yes, but no on rank 0; eval.max_batches is 3"),
                  rank.err);
  }
}

TEST_CASE("half of a rank's variables are refused by what works with others") {
  const TempFolder folder;
  const Finished alone = run_program(Words{"env", "WORLD_SIZE=2"} + training(folder / "run"));
  CHECK(alone.code == 2);
  CHECK(contains(alone.err, "WORLD_SIZE is set, as for one rank of several, but RANK, "));
  CHECK_FALSE(std::filesystem::exists(folder / "run"));
  CHECK(run_program({"env", "WORLD_SIZE=2", FOVEA_BINARY, "list", "tasks"}).code == 0);
}

TEST_CASE("of what one process does for all, rank 0 does it and speaks") {
  const TempFolder folder;
  const int port = free_port();
  const std::vector<Words> commands = {
      {"list", "tasks"},
      {"doctor", "--json"},
      {"inspect", FOVEA_SOURCE_DIR "/configs/smoke/lm.yaml"},
      {"data", "make", "mqar", folder / "mqar.jsonl", "--count", "5"},
      {"bench", "op", "--help"}};
  for (const Words& command : commands) {
    CAPTURE(command.front());
    const auto both = run_together({as_rank(0, 2, port, Words{FOVEA_BINARY} + command),
                                    as_rank(1, 2, port, Words{FOVEA_BINARY} + command)});
    CHECK(both[0].code == 0);
    CHECK_FALSE(both[0].out.empty());
    CHECK(both[1].code == 0);
    CHECK(both[1].out.empty());
    CHECK(both[1].err.empty());
  }
}

TEST_CASE("only rank 0 prints a record under another launcher") {
  const TempFolder folder;
  const int port = free_port();
  const Words two{"train.max_steps=2", "--json"};
  const auto both = run_together({as_rank(0, 2, port, training(folder / "run", two)),
                                  as_rank(1, 2, port, training(folder / "run", two))});
  CHECK(both[0].code == 0);
  CHECK(contains(both[0].out, "\"ok\":true"));
  CHECK(both[1].code == 0);
  CHECK(both[1].out.empty());
}

TEST_CASE("a stop that is asked for while the configuration is read counts") {
  for (const Words& ranks : {Words{}, Words{"--nproc", "2"}}) {
    const TempFolder folder;
    const std::string pipe = folder / "config.yaml";
    REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
    Words command = training(folder / "run", ranks);
    command[2] = pipe;
    const Finished stopped = run_program(
        announced(command), {"here", [&](pid_t process) {
                               CHECK(catches_sigterm(process));
                               ::kill(process, SIGTERM);
                               std::ofstream(pipe)
                                   << bytes_of(FOVEA_SOURCE_DIR "/configs/smoke/lm.yaml");
                             }});
    CHECK_MESSAGE(stopped.code == 75, stopped.err);
  }
}

TEST_CASE("a stop that reaches ranks before they listen is not lost") {
  const TempFolder folder;
  for (int i = 0; i < 3; ++i) {
    const Finished stopped = train(folder / "run", {"--nproc", "2", "train.max_steps=100000"},
                                   {"started 2 processes", [](pid_t id) { ::kill(id, SIGTERM); }});
    CHECK_MESSAGE(stopped.code == 75, stopped.err);
  }
}

TEST_CASE("a device that is not there is said once, and not started again for") {
  const TempFolder folder;
  for (const Words& ranks : {Words{}, Words{"--nproc", "2"}}) {
    const Finished refused = run_program(
        Words{"env", "CUDA_VISIBLE_DEVICES="} +
        training(folder / "run", ranks + Words{"train.device=cuda", "--max-restarts", "3"}));
    CHECK(refused.code == 8);
    CHECK_FALSE(contains(refused.err, "restart 1"));
    CHECK_FALSE(contains(refused.err, "started "));
  }
}
