// Runs of several processes that fail: who is named, with what code, and what is left.

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>

#include "run_ranks.h"

using namespace fovea;
using namespace fovea::test;

namespace {

namespace fs = std::filesystem;

std::string log_of(const std::string& run, int rank) {
  return file_text(cat(run, "/logs/rank_000", rank, ".log"));
}

std::string last_line(const std::string& text) {
  const std::size_t end = text.find_last_not_of('\n');
  const std::size_t before = end == std::string::npos ? end : text.rfind('\n', end);
  return text.substr(before == std::string::npos ? 0 : before + 1);
}

// A full disk for the file that a process writes next, if that is longer.
void fill_disk_of(pid_t process, rlim_t bytes) {
  const rlimit limit{bytes, bytes};
  REQUIRE(::prlimit(process, RLIMIT_FSIZE, &limit, nullptr) == 0);
}

// A write beyond the limit is to fail like one on a full disk, instead of killing the process.
Words heedless(const Words& command) {
  return Words{"sh", "-c", "trap '' XFSZ; exec \"$@\"", "sh"} + command;
}

// Nothing but checkpoints that are whole, and the link to the newest.
void check_only_whole_checkpoints(const std::string& run) {
  const Words names = names_in(run + "/ckpt");
  CHECK(names.size() >= 2);
  for (const std::string& name : names) {
    CAPTURE(name);
    CHECK((name == "latest" || name.starts_with("step_")));
    const Finished inspected = run_fovea({"inspect", run + "/ckpt/" + name});
    CHECK_MESSAGE(inspected.code == 0, inspected.err);
  }
}

// Whether the process listens to SIGTERM by now.
bool catches_sigterm(pid_t process) {
  std::ifstream status(cat("/proc/", process, "/status"));
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("SigCgt:"))
      return (std::stoull(line.substr(7), nullptr, 16) >> (SIGTERM - 1) & 1) != 0;
  }
  return false;
}

}  // namespace

TEST_CASE(
    "the rank whose disk is full is named by all, with its reason, and nothing torn is left") {
  for (const int full : {0, 1}) {
    CAPTURE(full);
    const TempFolder folder;
    const std::string run = folder / "run";
    const When when{"step 30/",
                    [&](pid_t launcher) { fill_disk_of(rank_of(launcher, full), 100'000); }};
    const Finished failed =
        run_program(heedless(training(run, {"--nproc", "2", "--max-restarts", "3",
                                            "train.max_steps=4000", "ckpt.interval=20"})),
                    when);
    CHECK_MESSAGE(failed.code == 3, failed.err);
    const std::string last = last_line(failed.err);
    CHECK_MESSAGE(last.starts_with(cat("error: rank ", full, " (pid ")), failed.err);
    CHECK(contains(last, ") ended with code 3: "));
    CHECK(contains(last, "the checkpoint cannot be written"));
    CHECK(contains(last, "File too large"));
    CHECK(contains(log_of(run, full), "File too large"));
    CHECK(contains(log_of(run, 1 - full), cat("rank ", full, " (host ")));
    CHECK(contains(log_of(run, 1 - full), "File too large"));
    CHECK_FALSE(contains(failed.err, "restart 1"));
    check_only_whole_checkpoints(run);
    CHECK(contains(file_text(run + "/status.json"), "\"failed\""));
  }
}

TEST_CASE("written behind training, a checkpoint that fails leaves nothing torn either") {
  const TempFolder folder;
  const std::string run = folder / "run";
  const When when{"step 30/", [&](pid_t launcher) {
                    for (const int rank : {0, 1})
                      fill_disk_of(rank_of(launcher, rank), 100'000);
                  }};
  const Finished failed = run_program(
      heedless(training(run, {"--nproc", "2", "train.max_steps=4000", "ckpt.interval=20",
                              "ckpt.async=always", "distributed.zero=1"})),
      when);
  CHECK_MESSAGE(failed.code == 3, failed.err);
  check_only_whole_checkpoints(run);
}

TEST_CASE("a folder in use ends all ranks at once, with the reason") {
  const TempFolder folder;
  const std::string run = folder / "run";
  fs::create_directories(run);
  const int lock = ::open((run + "/.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  REQUIRE(::flock(lock, LOCK_EX | LOCK_NB) == 0);
  const Finished refused = train(run, {"--nproc", "4"});
  CHECK(refused.code == 2);
  CHECK(contains(last_line(refused.err), "error: rank 0 (pid "));
  CHECK(contains(last_line(refused.err), "another process trains in this folder"));
  CHECK_FALSE(contains(refused.err, "did not react"));
  for (const int rank : {1, 2, 3}) {
    CHECK(contains(log_of(run, rank), "rank 0 (host "));
    CHECK(contains(log_of(run, rank), "another process trains in this folder"));
  }
  CHECK(log_of(run, 0).empty());
  // The same where another launcher started them, who does not end the others.
  const int port = free_port();
  for (const Finished& rank :
       run_together({as_rank(0, 2, port, training(run)), as_rank(1, 2, port, training(run))})) {
    CHECK(rank.code == 2);
    CHECK(contains(rank.err, "another process trains in this folder"));
  }
  ::close(lock);
}

TEST_CASE("a rank that cannot begin ends the others with its code and reason") {
  const TempFolder folder;
  const std::string run = folder / "run";
  fs::create_directories(run + "/logs/rank_0001.log");
  const Finished refused = train(run, {"--nproc", "2"});
  CHECK(refused.code == 3);
  CHECK(contains(last_line(refused.err), "error: rank 1 (pid "));
  CHECK(contains(last_line(refused.err), "rank_0001.log: the log file cannot be opened"));
  CHECK(contains(log_of(run, 0), "rank 1 (host "));
}

TEST_CASE("SIGTERM ends a rank that waits for others") {
  for (const int rank : {0, 1}) {
    const TempFolder folder;
    const Words command = Words{"sh", "-c", "echo here >&2; exec \"$@\"", "sh"} +
                          as_rank(rank, 2, free_port(), training(folder / "run"));
    const Finished stopped = run_program(command, {"here", [](pid_t process) {
                                                     while (!catches_sigterm(process))
                                                       std::this_thread::yield();
                                                     ::kill(process, SIGTERM);
                                                   }});
    CHECK(stopped.code == 75);
    CHECK(contains(stopped.err, "a signal asked for a stop before all ranks were there"));
  }
}

TEST_CASE("a folder that is removed or moved under a run is noticed") {
  for (const char* ranks : {"1", "2"}) {
    for (const std::string how : {"all", "contents", "moved"}) {
      CAPTURE(ranks);
      CAPTURE(how);
      const TempFolder folder;
      const std::string run = folder / "run";
      const When when{"step 20/", [&](pid_t) {
                        if (how == "moved") return fs::rename(run, folder / "elsewhere");
                        std::error_code ignored;
                        // The run may be writing a file between the looks of one removal.
                        for (int i = 0; how == "all" && i < 100 && fs::exists(run); ++i)
                          fs::remove_all(run, ignored);
                        if (how == "all") return;
                        for (const std::string& name : names_in(run)) {
                          if (name != ".lock") fs::remove_all(run + "/" + name, ignored);
                        }
                      }};
      const Finished failed =
          train(run, {"--nproc", ranks, "train.max_steps=100000", "ckpt.interval=1000"}, when);
      CHECK_MESSAGE(failed.code == 3, failed.err);
      CHECK_MESSAGE(contains(failed.err, "was removed, moved or replaced"), failed.err);
      CHECK(contains(failed.err, "start the run again"));
      if (how != "contents") CHECK_FALSE(fs::exists(run));
    }
  }
}

TEST_CASE("ranks with other settings are told which, with both values") {
  const TempFolder folder;
  const std::string run = folder / "run";
  const int port = free_port();
  const auto ended =
      run_together({as_rank(0, 2, port, training(run)),
                    as_rank(1, 2, port, training(run, {"optim.lr=2e-3", "eval.max_batches=3"}))});
  for (const Finished& rank : ended) {
    CHECK(rank.code == 2);
    CHECK_MESSAGE(contains(rank.err,
                           "computes something else than rank 0: "
                           "eval.max_batches is 3, but 8 on rank 0; "
                           "optim.lr is 0.002, but 0.003 on rank 0; all ranks need"),
                  rank.err);
    CHECK(contains(rank.err, "rank 1 (host "));
  }
}

TEST_CASE("a rank that never starts is named after the configured time") {
  const TempFolder folder;
  const int port = free_port();
  const Words brief{"distributed.join_timeout=1"};
  for (const Finished& rank :
       run_together({as_rank(0, 3, port, training(folder / "run", brief)),
                     as_rank(1, 3, port, training(folder / "run", brief))})) {
    CHECK(rank.code == 6);
    CHECK_MESSAGE(contains(rank.err, ": after 1 s rank 2 of 3 is not here"), rank.err);
  }
}

TEST_CASE("an altered byte of any rank's part of a checkpoint ends all ranks with code 7") {
  const TempFolder folder;
  const std::string run = folder / "run";
  const Words ten{"train.max_steps=10", "distributed.zero=1"},
      twenty{"train.max_steps=20", "distributed.zero=1"};
  const Words constant{"sched.kind=constant"};
  REQUIRE(train(run, Words{"--nproc", "2"} + ten + constant).code == 0);
  const std::string part = run + "/ckpt/step_00000010/optimizer-00002-of-00002.safetensors";
  std::string bytes = bytes_of(part);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  std::ofstream(part, std::ios::binary) << bytes;
  const int port = free_port();
  for (const Finished& rank :
       run_together({as_rank(0, 2, port, training(run, twenty + constant)),
                     as_rank(1, 2, port, training(run, twenty + constant))})) {
    CHECK(rank.code == 7);
    CHECK_MESSAGE(contains(rank.err, "optimizer-00002-of-00002.safetensors"), rank.err);
  }
  const Finished launched = train(run, Words{"--nproc", "2"} + twenty + constant);
  CHECK(launched.code == 7);
  CHECK(contains(launched.err, "error: rank 0 (pid "));
  CHECK(contains(last_line(launched.err), "optimizer-00002-of-00002.safetensors"));
}

TEST_CASE("eval says how its processes share the work, and gives what one gives") {
  const TempFolder folder;
  const std::string run = folder / "run";
  REQUIRE(train(run, {"train.max_steps=2"}).code == 0);
  const Finished one = run_fovea({"eval", run, "eval.max_batches=3", "--json"});
  const Finished five = run_fovea({"eval", run, "eval.max_batches=3", "--nproc", "5", "--json"});
  CHECK(five.code == 0);
  CHECK(five.out == one.out);
  CHECK_MESSAGE(contains(five.err, "5 processes share 3 batches"), five.err);
  CHECK(contains(five.err, "2 of the 5 processes have nothing to do: 3 are as fast"));
}
