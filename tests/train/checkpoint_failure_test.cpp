// What is left when a checkpoint is not written, or not as it was.

#include <chrono>
#include <csignal>

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checkpoint_ranks.h"
#include "train/checkpoint_files.h"
#include "train/checkpoint_moments.h"
#include "train/run_folder.h"

using namespace fovea;
using namespace fovea::train;
using namespace fovea::test;
namespace fs = std::filesystem;

TEST_CASE("what goes wrong behind training is thrown once, by whichever call comes next") {
  const TemporaryFolder temporary;
  overwrite(temporary.path("file"), "in the way of a folder");
  Rank rank(40, {.async = true});
  const std::string bad = temporary.path("file") + "/step_00000007";
  rank.save(bad);
  CHECK_THROWS_WITH_AS(rank.writer.wait(), doctest::Contains(bad.c_str()), IoError);
  CHECK_NOTHROW(rank.writer.wait());
  rank.save(bad);
  CHECK_THROWS_AS(rank.save(temporary.path("good")), IoError);
  CHECK_FALSE(fs::exists(temporary.path("good")));
  rank.save(bad);
  CHECK_THROWS_AS(
      {
        while (!rank.writer.poll())
          std::this_thread::yield();
      },
      IoError);
  CHECK(rank.writer.poll());
  rank.save(temporary.path("good"));
  rank.writer.wait();
  CHECK_NOTHROW(Checkpoint{temporary.path("good")});
}

TEST_CASE("an error of the caller's own, once the checkpoint has its name, leaves it there") {
  const TemporaryFolder temporary;
  for (const bool async : {false, true}) {
    Rank rank(40, {.async = async});
    const std::string path = temporary.path(async ? "behind" : "waiting");
    CHECK_THROWS_WITH_AS(
        {
          rank.save(path, [] { throw NumericError("of the caller"); });
          rank.writer.wait();
        },
        "of the caller", NumericError);
    CHECK_NOTHROW(Checkpoint{path});
  }
}

TEST_CASE("ranks whose part does not come are named, and the earlier checkpoint stays") {
  const TemporaryFolder temporary;
  const std::string path = temporary.path("step_00000007");
  save_together(path, 40, {.ranks = 3, .launch_id = 1});
  Rank first(40, {.ranks = 3, .launch_id = 2, .patience = std::chrono::milliseconds(5)});
  CHECK_THROWS_WITH_AS(first.save(path), doctest::Contains("the part of ranks 1, 2 is missing"),
                       IoError);
  CHECK_NOTHROW(Checkpoint{path});
  CHECK(files_of(temporary.path()).size() == 1);
}

TEST_CASE("a rank that cannot write says why to rank 0") {
  const TemporaryFolder temporary;
  const std::string path = temporary.path("step_00000007");
  // A folder where its file would be.
  fs::create_directories(temporary_folder(path, 5, 0) + "/" + optimizer_file(1, 2));
  std::string second;
  std::jthread thread([&] {
    Rank rank(40, {.rank = 1, .ranks = 2, .launch_id = 5});
    second = message_of([&] { rank.save(path); });
  });
  Rank first(40, {.ranks = 2, .launch_id = 5, .patience = std::chrono::seconds(20)});
  std::string message;
  try {
    first.save(path);
  } catch (const CommunicationError& e) {  // which gives way to what rank 1 says itself
    message = e.what();
  }
  thread.join();
  CHECK(has(second, "optimizer-00002-of-00002.safetensors: cannot be created"));
  CHECK(has(message, "step_00000007: the checkpoint cannot be written: rank 1: "));
  CHECK(has(message, "optimizer-00002-of-00002.safetensors: cannot be created"));
  CHECK(files_of(temporary.path()).empty());
}

TEST_CASE("a rank whose checkpoint rank 0 has given up leaves the reason to rank 0") {
  const TemporaryFolder temporary;
  const std::string path = temporary.path("step_00000007");
  Rank rank(40, {.rank = 1, .ranks = 2, .launch_id = 5});
  for (int attempt = 0; attempt < 20; ++attempt) {
    const std::string folder = temporary_folder(path, 5, attempt);
    std::jthread rank_0([&](const std::stop_token& stop) {
      std::error_code ignored;
      while (!stop.stop_requested())
        fs::remove_all(folder, ignored);
    });
    CHECK_NOTHROW(rank.save(path));
  }
}

TEST_CASE("a disk that fills up under a writer behind training costs the new checkpoint only") {
  const TemporaryFolder temporary;
  save_together(temporary.path("step_00000007"), 40, {});
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit limit{2000, 2000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    ::signal(SIGXFSZ, SIG_IGN);
    Rank rank(400, {.async = true});
    rank.save(temporary.path("step_00000008"));
    const std::string message = message_of([&] { rank.writer.wait(); });
    ::_exit(has(message, "step_00000008") && has(message, "File too large") ? 42 : 1);
  }
  int state = 0;
  ::waitpid(child, &state, 0);
  CHECK(WEXITSTATUS(state) == 42);
  CHECK(files_of(temporary.path()).size() == 1);
  CHECK_NOTHROW(Checkpoint{temporary.path("step_00000007")});
}

TEST_CASE("ranks that disagree about who writes what make no checkpoint") {
  const TemporaryFolder temporary;
  const std::string path = temporary.path("step_00000007");
  std::jthread thread([&] {
    Rank rank(kWidth, {.rank = 1, .ranks = 2});
    rank.save(path);
  });
  Rank first(kWidth, {.ranks = 2, .sharded = true});
  const std::string message = message_of([&] { first.save(path); });
  thread.join();
  CHECK(has(message, "the ranks' parts do not make a whole"));
  CHECK(has(message, "overlapping first/weight["));
  CHECK_FALSE(fs::exists(path));
}

TEST_CASE("killed while it writes, a run shows no checkpoint, and its next start clears up") {
  const TemporaryFolder temporary;
  const std::string run = temporary.path("run"), path = run + "/ckpt/step_00000007";
  fs::create_directories(run + "/ckpt");
  fs::create_directory_symlink("step_00000007", run + "/ckpt/.writing_latest");
  const pid_t child = ::fork();
  if (child == 0) {
    Rank rank(40, {.ranks = 2, .launch_id = 8, .async = true});  // nobody is rank 1
    rank.save(path);
    rank.writer.wait();
    ::_exit(1);
  }
  // Its whole part is there, and the folder has no name yet.
  const std::string last = temporary_folder(path, 8, 0) + "/state.json";
  while (!fs::exists(last) && ::waitpid(child, nullptr, WNOHANG) == 0)
    std::this_thread::yield();
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  CHECK(checkpoints_in(run).empty());
  CHECK(fs::exists(last));
  const std::string own = temporary_folder(path, 9, 77);  // of this start: somebody may be writing
  fs::create_directories(own);
  save_together(path, 40, {.ranks = 2, .launch_id = 9});
  CHECK(checkpoints_in(run).size() == 1);
  CHECK_NOTHROW(Checkpoint{path});
  CHECK(files_of(run + "/ckpt") ==
        std::vector<std::string>{run + "/ckpt/.writing_latest", own, path});
}

TEST_CASE("any altered byte of any rank's file is found, whichever way it is read") {
  const TemporaryFolder temporary;
  const std::string path = temporary.path("checkpoint");
  save_together(path, 100, {.ranks = 2});
  const auto load = [&](Verify verify) {
    Bench reader(100);
    const Checkpoint checkpoint(path, verify);
    checkpoint.load_model(reader.ctx, reader.model, *reader.store);
    checkpoint.load_optimizer(reader.ctx, *reader.store);
  };
  for (const std::string& file : files_of(path)) {
    const std::string good = contents(file), name = fs::path(file).filename().string();
    for (std::size_t at = 0; at < good.size(); at += 13) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ (1 << (at % 8)));
      overwrite(file, bad);
      CHECK_THROWS_WITH_AS(load(Verify::everything), doctest::Contains(name.c_str()),
                           CheckpointError);
      CHECK_THROWS_AS(load(Verify::what_is_read), CheckpointError);
    }
    overwrite(file, good);
    fs::rename(file, file + ".gone");
    CHECK_THROWS_WITH_AS(load(Verify::everything), doctest::Contains(name.c_str()),
                         CheckpointError);
    CHECK_THROWS_WITH_AS(load(Verify::what_is_read), doctest::Contains(name.c_str()),
                         CheckpointError);
    fs::rename(file + ".gone", file);
    CHECK_NOTHROW(load(Verify::what_is_read));
  }
}

TEST_CASE("a rank that verifies what it reads looks at the files of its own moments only") {
  const TemporaryFolder temporary;
  const std::string path = temporary.path("checkpoint");
  save_together(path, kWidth, {.ranks = 2, .sharded = true});
  const std::string file = path + "/" + optimizer_file(1, 2);
  std::string bad = contents(file);
  bad.back() = static_cast<char>(bad.back() ^ 1);
  overwrite(file, bad);
  for (const int rank : {0, 1}) {
    Bench reader(kWidth, "weight", Precision::fp32, 99, shard(rank, 2));
    const Checkpoint checkpoint(path, Verify::what_is_read);
    if (rank == 0) {
      CHECK_NOTHROW(checkpoint.load_optimizer(reader.ctx, *reader.store));
    } else {
      CHECK_THROWS_WITH_AS(checkpoint.load_optimizer(reader.ctx, *reader.store),
                           doctest::Contains("tensor second/bias"), CheckpointError);
    }
  }
  CHECK_THROWS_AS(Checkpoint{path}, CheckpointError);
}

TEST_CASE("a checkpoint folder that is gone is not made anew") {
  const TemporaryFolder temporary;
  for (const bool async : {false, true}) {
    Rank rank(40, {.async = async});
    CHECK_THROWS_WITH_AS(
        {
          rank.save(temporary.path("run/ckpt/step_00000007"));
          rank.writer.wait();
        },
        doctest::Contains("run/ckpt: is not there: it was removed, moved or replaced"), IoError);
  }
  CHECK_FALSE(fs::exists(temporary.path("run")));
}

TEST_CASE("a new checkpoint that cannot take its name leaves the old one there") {
  const TemporaryFolder temporary;
  const std::string path = temporary.path("step_00000007");
  save_together(path, 40, {});
  CHECK_THROWS_AS(put_in_place(temporary.path("nothing"), path), IoError);
  CHECK_NOTHROW(Checkpoint{path});
  CHECK(files_of(temporary.path()) == std::vector<std::string>{path});
}
