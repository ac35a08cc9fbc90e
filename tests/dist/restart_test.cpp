// Which failures are worth another start, and with how many processes.

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <sstream>

#include <doctest/doctest.h>

#include "core/log.h"
#include "data/temp_folder.h"
#include "dist/launcher.h"
#include "process.h"

using namespace fovea;
using namespace fovea::test;
using std::chrono::milliseconds;

namespace {

// Rank 0 of every start notes the number of processes and their GPUs, then runs the script; $START
// counts the starts from 1.
dist::LaunchOptions starts_of(const TempFolder& folder, int processes, const std::string& script) {
  const std::string note =
      "START=$(($(cat $1/starts 2>/dev/null | wc -l) + 1))\n"
      "if [ $FOVEA_RANK = 0 ]; then\n"
      "  echo $FOVEA_WORLD_SIZE $CUDA_VISIBLE_DEVICES >> $1/starts\n"
      "  echo $FOVEA_TOKEN $FOVEA_RENDEZVOUS >> $1/meetings\nfi\n";
  dist::LaunchOptions options;
  options.program = "/bin/sh";
  options.arguments = {folder.put("rank.sh", note + script), folder.path()};
  options.processes = processes;
  options.backoff = milliseconds(1);
  log::console(false);
  return options;
}

std::string starts(const TempFolder& folder) {
  return file_text(folder / "starts");
}

}  // namespace

TEST_SUITE("restarts") {
  TEST_CASE("a killed rank is worth another start, with a new token") {
    const TempFolder folder;
    dist::LaunchOptions options =
        starts_of(folder, 1, "[ $START = 1 ] && kill -9 $$; echo start $START");
    options.max_restarts = 2;
    options.capture = true;
    const dist::LaunchResult result = dist::launch(options);
    CHECK(result.code == ExitCode::ok);
    CHECK(result.output == "start 2\n");
    CHECK(starts(folder) == "1\n1\n");
    std::istringstream meetings(file_text(folder / "meetings"));
    std::string first, second;
    std::getline(meetings, first);
    std::getline(meetings, second);
    CHECK(first.substr(0, 32) != second.substr(0, 32));
  }

  TEST_CASE("communication and device errors are worth another start, the others are not") {
    for (const int code : {1, 2, 3, 4, 5, 6, 7, 8, 127}) {
      const TempFolder folder;
      dist::LaunchOptions options = starts_of(folder, 1, "exit " + std::to_string(code));
      options.max_restarts = 1;
      const dist::LaunchResult result = dist::launch(options);
      INFO("code ", code);
      CHECK(static_cast<int>(result.code) == code);
      CHECK(starts(folder) == (code == 6 || code == 8 ? "1\n1\n" : "1\n"));
    }
  }

  TEST_CASE("restarts end at their number") {
    const TempFolder folder;
    dist::LaunchOptions options = starts_of(folder, 1, "exit 6");
    options.max_restarts = 3;
    CHECK(dist::launch(options).code == ExitCode::communication);
    CHECK(starts(folder) == "1\n1\n1\n1\n");
  }

  TEST_CASE("without restarts a failure is the end") {
    const TempFolder folder;
    CHECK(dist::launch(starts_of(folder, 1, "exit 6")).code == ExitCode::communication);
    CHECK(starts(folder) == "1\n");
  }

  TEST_CASE("restarts that gain nothing halve the processes, down to the least allowed") {
    const TempFolder folder;
    dist::LaunchOptions options = starts_of(folder, 8, "exit 6");
    options.max_restarts = 5;
    options.min_processes = 2;
    options.progress = [] { return 7; };
    dist::launch(options);
    CHECK(starts(folder) == "8\n8\n4\n2\n2\n2\n");
  }

  TEST_CASE("without a least number the processes stay as many") {
    const TempFolder folder;
    dist::LaunchOptions options = starts_of(folder, 4, "exit 6");
    options.max_restarts = 3;
    dist::launch(options);
    CHECK(starts(folder) == "4\n4\n4\n4\n");
  }

  TEST_CASE("a restart that made progress keeps the number of processes") {
    const TempFolder folder;
    dist::LaunchOptions options = starts_of(folder, 4, "exit 6");
    options.max_restarts = 4;
    options.min_processes = 1;
    // Starts 1, 2 and 3 gain a checkpoint each, the fourth does not.
    options.progress = [&] {
      const std::string text = starts(folder);
      return std::min<std::int64_t>(3, std::count(text.begin(), text.end(), '\n'));
    };
    dist::launch(options);
    CHECK(starts(folder) == "4\n4\n4\n4\n2\n");
  }

  TEST_CASE("the half with the rank that failed is left out, by its GPU") {
    for (const std::string failed : {"1", "2"}) {
      const TempFolder folder;
      dist::LaunchOptions options =
          starts_of(folder, 4,
                    "[ $FOVEA_WORLD_SIZE = 4 ] || exit 0\n[ $FOVEA_RANK = " + failed +
                        " ] && exit 8\nsleep 0.1; exit 6");
      options.max_restarts = 2;
      options.min_processes = 1;
      options.devices = {"4", "5", "6", "7"};
      CHECK(dist::launch(options).code == ExitCode::ok);
      CHECK(starts(folder) ==
            "4 4,5,6,7\n4 4,5,6,7\n" + std::string(failed == "1" ? "2 6,7\n" : "2 4,5\n"));
    }
  }

  TEST_CASE("a signal while a restart is waited for ends the run, resumable") {
    const TempFolder folder;
    dist::LaunchOptions options = starts_of(folder, 1, "exit 6");
    options.max_restarts = 1;
    options.backoff = std::chrono::minutes(10);
    // It is asked for before the start, after the failure, and for the message of the restart.
    int asked = 0;
    options.progress = [&] {
      if (++asked == 3) ::raise(SIGTERM);
      return -1;
    };
    CHECK(dist::launch(options).code == ExitCode::stopped);
    CHECK(starts(folder) == "1\n");
  }

  TEST_CASE("a run that was asked to stop is not started again when that fails") {
    const TempFolder folder;
    dist::LaunchOptions options =
        starts_of(folder, 1, "trap 'exit 6' TERM; kill -TERM $PPID; while :; do sleep 0.02; done");
    options.max_restarts = 3;
    CHECK(dist::launch(options).code == ExitCode::communication);
    CHECK(starts(folder) == "1\n");
  }
}
