#include "train/run_folder.h"

#include <csignal>
#include <filesystem>
#include <iterator>
#include <vector>

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/error.h"
#include "temporary.h"

using namespace fovea;
using namespace fovea::train;
namespace fs = std::filesystem;
using test::TemporaryFolder;

namespace {

void pretend_checkpoint(const RunFolder& folder, std::int64_t step) {
  fs::create_directories(folder.checkpoint(step));
  test::overwrite(folder.checkpoint(step) + "/state.json", "x");
}

std::vector<std::int64_t> steps(const RunFolder& folder) {
  std::vector<std::int64_t> out;
  for (const CheckpointName& name : checkpoints_in(folder.path()))
    out.push_back(name.step);
  return out;
}

}  // namespace

TEST_CASE("two processes never share a run folder") {
  const TemporaryFolder temporary;
  const std::string path = temporary.path("run");
  const RunFolder mine(path);
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      const RunFolder theirs(path);
      ::_exit(0);
    } catch (const ConfigError&) {
      ::_exit(42);
    }
  }
  int state = 0;
  ::waitpid(child, &state, 0);
  CHECK(WEXITSTATUS(state) == 42);
}

TEST_CASE("the lock of a dead process is harmless") {
  const TemporaryFolder temporary;
  const std::string path = temporary.path("run");
  const pid_t child = ::fork();
  if (child == 0) {
    const RunFolder theirs(path);
    ::kill(::getpid(), SIGKILL);
  }
  ::waitpid(child, nullptr, 0);
  CHECK(fs::exists(path + "/.lock"));
  CHECK_NOTHROW(RunFolder{path});
}

TEST_CASE("a folder is in use as long as its run holds it, and asking changes nothing") {
  const TemporaryFolder temporary;
  const std::string path = temporary.path("run");
  CHECK_FALSE(is_in_use(path));
  CHECK_FALSE(fs::exists(path));
  {
    const RunFolder mine(path);
    CHECK(is_in_use(path));
  }
  CHECK_FALSE(is_in_use(path));
  const RunFolder again(path);  // the question left no lock behind
}

TEST_CASE("pruning keeps the newest, the multiples and the best") {
  const TemporaryFolder temporary;
  const RunFolder folder(temporary.path("run"));
  for (const std::int64_t step : {10, 20, 30, 40, 50, 60})
    pretend_checkpoint(folder, step);
  folder.prune(2, 20, 30);
  CHECK(steps(folder) == std::vector<std::int64_t>{20, 30, 40, 50, 60});
  folder.prune(1, 0, -1);
  CHECK(steps(folder) == std::vector<std::int64_t>{60});
}

TEST_CASE("what a killed process was writing or deleting is cleared away") {
  const TemporaryFolder temporary;
  const std::string path = temporary.path("run");
  fs::create_directories(path + "/ckpt/.writing_step_00000010_77");
  fs::create_directories(path + "/ckpt/.deleting_step_00000005");
  const RunFolder folder(path);
  CHECK(steps(folder).empty());
  CHECK_FALSE(fs::exists(path + "/ckpt/.writing_step_00000010_77"));
  CHECK_FALSE(fs::exists(path + "/ckpt/.deleting_step_00000005"));
}

TEST_CASE("latest follows the newest checkpoint") {
  const TemporaryFolder temporary;
  const RunFolder folder(temporary.path("run"));
  pretend_checkpoint(folder, 10);
  folder.set_latest(10);
  pretend_checkpoint(folder, 20);
  folder.set_latest(20);
  CHECK(fs::read_symlink(folder.file("ckpt/latest")) == "step_00000020");
  CHECK(fs::exists(folder.file("ckpt/latest/state.json")));
}

TEST_CASE("checkpoints beyond a start are set aside, not deleted") {
  const TemporaryFolder temporary;
  const RunFolder folder(temporary.path("run"));
  for (const std::int64_t step : {10, 20, 30})
    pretend_checkpoint(folder, step);
  CHECK(folder.discard_beyond(10) == 2);
  CHECK(steps(folder) == std::vector<std::int64_t>{10});
  CHECK(fs::exists(folder.file("ckpt/discarded_step_00000030/state.json")));
}

TEST_CASE("only folders with a checkpoint's exact name count") {
  const TemporaryFolder temporary;
  const RunFolder folder(temporary.path("run"));
  for (const char* name : {"step_10", "step_0000001x", "step_", "best", "step_00000010.old"}) {
    fs::create_directories(folder.file(std::string("ckpt/") + name));
  }
  CHECK(steps(folder).empty());
  CHECK(checkpoint_name(123456789012) == "step_123456789012");
}

TEST_CASE("a folder that cannot be made is an error with the path") {
  const TemporaryFolder temporary;
  test::overwrite(temporary.path("file"), "x");
  CHECK_THROWS_WITH_AS(RunFolder(temporary.path("file") + "/run"), doctest::Contains("file/run"),
                       IoError);
}

TEST_CASE("a folder that is gone, or another one of its name, takes no more files") {
  const TemporaryFolder temporary;
  const std::string path = temporary.path("run");
  const RunFolder gone(path);
  gone.require_there();
  fs::rename(path, temporary.path("elsewhere"));
  CHECK_THROWS_WITH_AS(gone.write("status.json", "{}"),
                       doctest::Contains("the run folder was removed, moved or replaced"), IoError);
  CHECK_FALSE(fs::exists(path));
  const RunFolder another(path);  // of another run: it locks what is there now
  CHECK_THROWS_AS(gone.write("status.json", "{}"), IoError);
  another.write("status.json", "{}");
  CHECK(test::contents(path + "/status.json") == "{}");
}

TEST_CASE("clearing up after a failure takes what was unfinished, and nothing of another run") {
  const TemporaryFolder temporary;
  const std::string path = temporary.path("run");
  const RunFolder mine(path);
  pretend_checkpoint(mine, 10);
  for (const char* name : {"/ckpt/.writing_step_00000020_1_0", "/ckpt/.deleting_step_00000005"})
    fs::create_directories(path + name);
  test::overwrite(path + "/ckpt/.writing_step_00000020_1_0/part", "x");
  test::overwrite(path + "/.writing_status.json", "x");
  RunFolder(path, false).clear_up();  // a rank that does not own the folder
  CHECK(fs::exists(path + "/.writing_status.json"));
  mine.clear_up();
  CHECK(steps(mine) == std::vector<std::int64_t>{10});
  const auto kept = fs::directory_iterator(path + "/ckpt");
  CHECK(std::distance(begin(kept), end(kept)) == 1);
  CHECK_FALSE(fs::exists(path + "/.writing_status.json"));
  fs::remove_all(path);
  const RunFolder another(path);
  fs::create_directories(path + "/ckpt/.writing_step_00000030_2_0");
  mine.clear_up();
  CHECK(fs::exists(path + "/ckpt/.writing_step_00000030_2_0"));
}
