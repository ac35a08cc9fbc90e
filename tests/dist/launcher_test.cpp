// Starting, ending and restarting the processes of a run, with shell scripts in the ranks' places.

#include "dist/launcher.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include <doctest/doctest.h>
#include <sys/wait.h>

#include "core/log.h"
#include "data/temp_folder.h"
#include "process.h"

using namespace fovea;
using namespace fovea::test;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

// A launch whose ranks run the script: $1 is the folder, $FOVEA_RANK the rank.
dist::LaunchOptions ranks_of(const TempFolder& folder, int processes, const std::string& script) {
  dist::LaunchOptions options;
  options.program = "/bin/sh";
  options.arguments = {folder.put("rank.sh", "echo $$ >> " + (folder / "pids") + "\n" + script),
                       folder.path()};
  options.processes = processes;
  options.capture = true;
  log::console(false);
  return options;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);)
    out.push_back(line);
  return out;
}

// What the file says once it says something.
std::string awaited(const std::string& path) {
  for (int i = 0; i < 2000 && file_text(path).empty(); ++i)
    std::this_thread::sleep_for(milliseconds(5));
  return file_text(path);
}

// Whether a process of the group runs. One that ended and that nobody waited for does not.
bool group_runs(const std::string& group) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::string stat;  // "pid (name) state parent group"; empty if it is none, or has just gone
    std::ifstream file(entry.path() / "stat");
    std::getline(file, stat);
    std::istringstream fields(stat.substr(std::min(stat.size(), stat.rfind(')') + 1)));
    std::string state, parent, its_group;
    fields >> state >> parent >> its_group;
    if (its_group == group && state != "Z") return true;
  }
  return false;
}

// No child is left, dead or alive, nor any process of the ranks' groups.
void check_nothing_left(const TempFolder& folder) {
  CHECK(::waitpid(-1, nullptr, WNOHANG) == -1);
  CHECK(errno == ECHILD);
  for (const std::string& pid : lines_of(file_text(folder / "pids"))) {
    bool runs = true;
    for (int i = 0; i < 1000 && (runs = group_runs(pid)); ++i)
      std::this_thread::sleep_for(milliseconds(5));
    INFO("process group ", pid);
    CHECK_FALSE(runs);
  }
}

// Acts in another thread while the launcher runs in this one, as it must.
struct Meanwhile {
  std::thread thread;
  template <class Action>
  explicit Meanwhile(Action action) : thread(action) {}
  ~Meanwhile() { thread.join(); }
};

}  // namespace

TEST_SUITE("launcher") {
  TEST_CASE("processes that all succeed give code 0 and no message") {
    const TempFolder folder;
    const dist::LaunchResult result = dist::launch(ranks_of(folder, 3, "exit 0"));
    CHECK(result.code == ExitCode::ok);
    CHECK(result.message.empty());
    CHECK(lines_of(file_text(folder / "pids")).size() == 3);
    check_nothing_left(folder);
  }

  TEST_CASE("every rank is told its rank, the size, the meeting place and one token") {
    const TempFolder folder;
    ::setenv("FOVEA_LISTENER", "77", 1);
    ::setenv("FOVEA_TOKEN", "of somebody else", 1);
    dist::launch(ranks_of(folder, 3, "env | grep ^FOVEA_ | sort > $1/env$FOVEA_RANK"));
    ::unsetenv("FOVEA_LISTENER");
    ::unsetenv("FOVEA_TOKEN");
    std::string meeting, token;
    for (int rank = 0; rank < 3; ++rank) {
      const std::string text = file_text(folder / ("env" + std::to_string(rank)));
      const std::string number = std::to_string(rank);
      CHECK(contains(text, "FOVEA_RANK=" + number + "\n"));
      CHECK(contains(text, "FOVEA_LOCAL_RANK=" + number + "\n"));
      CHECK(contains(text, "FOVEA_WORLD_SIZE=3\n"));
      CHECK(contains(text, "FOVEA_LOCAL_SIZE=3\n"));
      CHECK(contains(text, "FOVEA_LISTENER=") == (rank == 0));
      CHECK_FALSE(contains(text, "FOVEA_LISTENER=77"));
      for (const std::string& line : lines_of(text)) {
        if (line.starts_with("FOVEA_RENDEZVOUS=127.0.0.1:")) {
          CHECK((meeting.empty() || meeting == line));
          meeting = line;
        }
        if (line.starts_with("FOVEA_TOKEN=")) {
          CHECK((token.empty() || token == line));
          token = line;
        }
      }
    }
    CHECK(meeting.size() > std::string("FOVEA_RENDEZVOUS=127.0.0.1:").size());
    CHECK(token.size() == std::string("FOVEA_TOKEN=").size() + 32);
  }

  TEST_CASE("only rank 0 inherits the socket, and it listens at the meeting place") {
    const TempFolder folder;
    const std::string script =
        "ls -l /proc/self/fd | grep -c socket: > $1/sockets$FOVEA_RANK\n"
        "if [ $FOVEA_RANK = 0 ]; then\n"
        "  readlink /proc/$$/fd/$FOVEA_LISTENER > $1/socket\n"
        "  printf '%04X\\n' ${FOVEA_RENDEZVOUS##*:} > $1/port\n"
        "  cat /proc/net/tcp > $1/tcp\n"
        "fi";
    const dist::LaunchResult result = dist::launch(ranks_of(folder, 2, script));
    CHECK(result.code == ExitCode::ok);
    CHECK(contains(file_text(folder / "socket"), "socket:["));
    CHECK(file_text(folder / "sockets0") != file_text(folder / "sockets1"));
    // 0100007F:PORT is 127.0.0.1, and state 0A listens.
    const std::string port = lines_of(file_text(folder / "port")).front();
    CHECK(contains(file_text(folder / "tcp"), "0100007F:" + port + " 00000000:0000 0A"));
  }

  TEST_CASE("the token does not stand on a command line that others can read") {
    const TempFolder folder;
    dist::launch(
        ranks_of(folder, 1, "cat /proc/$$/cmdline > $1/cmdline; echo $FOVEA_TOKEN > $1/t"));
    const std::string token = lines_of(file_text(folder / "t")).front();
    CHECK(token.size() == 32);
    CHECK_FALSE(contains(file_text(folder / "cmdline"), token));
    CHECK(contains(file_text(folder / "cmdline"), "rank.sh"));
  }

  TEST_CASE("stdout is that of rank 0 alone, and stdin is empty") {
    const TempFolder folder;
    const dist::LaunchResult result =
        dist::launch(ranks_of(folder, 2, "echo rank $FOVEA_RANK speaks; cat"));
    CHECK(result.output == "rank 0 speaks\n");
  }

  TEST_CASE("the code is that of the rank that failed, and the sleepers are ended") {
    const TempFolder folder;
    dist::LaunchOptions options = ranks_of(folder, 3, "[ $FOVEA_RANK = 1 ] && exit 4; sleep 600");
    options.grace = milliseconds(50);
    const dist::LaunchResult result = dist::launch(options);
    CHECK(result.code == ExitCode::non_finite);
    CHECK(result.message.starts_with("rank 1 (pid "));
    CHECK(contains(result.message, ") ended with code 4"));
    check_nothing_left(folder);
  }

  TEST_CASE("a rank that was killed counts as a failure of communication, whoever says so first") {
    const TempFolder folder;
    // The others see that it is gone and end with 6 before it is seen to have ended.
    const dist::LaunchResult result =
        dist::launch(ranks_of(folder, 3, "[ $FOVEA_RANK = 2 ] && sleep 0.1 && kill -9 $$; exit 6"));
    CHECK(result.code == ExitCode::communication);
    CHECK(result.message.starts_with("rank 2 (pid "));
    CHECK(contains(result.message, ") was killed by signal 9 (SIGKILL)"));
    check_nothing_left(folder);
  }

  TEST_CASE("a stopped process does not keep the launcher from ending") {
    const TempFolder folder;
    dist::LaunchOptions options =
        ranks_of(folder, 2,
                 "if [ $FOVEA_RANK = 1 ]; then echo $$ > $1/one; kill -STOP $$; fi\n"
                 "until [ -s $1/one ] && grep -q '^State:.T' /proc/$(cat $1/one)/status; do sleep "
                 "0.02; done\n"
                 "exit 6");
    options.grace = options.until_killed = milliseconds(50);
    const dist::LaunchResult result = dist::launch(options);
    CHECK(result.code == ExitCode::communication);
    CHECK(contains(result.message, "rank 0 (pid "));
    CHECK(contains(result.message, ") ended with code 6; rank 1 (pid "));
    CHECK(contains(result.message, ") did not react and was killed"));
    check_nothing_left(folder);
  }

  TEST_CASE("the others may say why before they are ended") {
    const TempFolder folder;
    const dist::LaunchResult result = dist::launch(ranks_of(
        folder, 2, "[ $FOVEA_RANK = 1 ] && exit 6; sleep 0.2; echo done > $1/done; exit 6"));
    CHECK(result.code == ExitCode::communication);
    CHECK(file_text(folder / "done") == "done\n");
  }

  TEST_CASE("one stopped rank makes the code 75") {
    const TempFolder folder;
    const dist::LaunchResult result =
        dist::launch(ranks_of(folder, 2, "[ $FOVEA_RANK = 1 ] && exit 75; exit 0"));
    CHECK(result.code == ExitCode::stopped);
    CHECK(result.message.empty());
  }

  TEST_CASE("a signal is handed on once to every rank, and none is lost") {
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
      const TempFolder folder;
      dist::LaunchOptions options =
          ranks_of(folder, 2,
                   "trap 'echo got >> $1/got$FOVEA_RANK; exit 75' INT TERM HUP\n"
                   "echo ready > $1/ready$FOVEA_RANK\nwhile :; do sleep 0.02; done");
      options.max_restarts = 3;
      const Meanwhile user([&] {
        awaited(folder / "ready0");
        awaited(folder / "ready1");
        ::kill(::getpid(), signal);
      });
      CHECK(dist::launch(options).code == ExitCode::stopped);
      CHECK(file_text(folder / "got0") == "got\n");
      CHECK(file_text(folder / "got1") == "got\n");
      check_nothing_left(folder);
    }
  }

  TEST_CASE(
      "a second signal ends all at once, also those that do not listen; an echo of the first is "
      "none") {
    const TempFolder folder;
    dist::LaunchOptions options = ranks_of(folder, 2,
                                           "trap 'echo got >> $1/got$FOVEA_RANK' TERM\n"
                                           "echo ready > $1/ready$FOVEA_RANK\n"
                                           "while :; do sleep 0.02; done");
    options.max_restarts = 3;
    options.grace = options.until_killed = seconds(300);
    const Meanwhile user([&] {
      awaited(folder / "ready0");
      awaited(folder / "ready1");
      ::kill(::getpid(), SIGTERM);
      awaited(folder / "got0");
      awaited(folder / "got1");
      ::kill(::getpid(), SIGTERM);  // still the first wish
      ::usleep(1'100'000);
      CHECK(lines_of(file_text(folder / "got0")).size() == 1);
      ::kill(::getpid(), SIGINT);
    });
    const dist::LaunchResult result = dist::launch(options);
    CHECK(static_cast<int>(result.code) == 128 + SIGINT);
    CHECK(contains(result.message, "second signal (SIGINT)"));
    CHECK(lines_of(file_text(folder / "pids")).size() == 2);
    check_nothing_left(folder);
  }

  TEST_CASE("the ranks stand in process groups of their own") {
    const TempFolder folder;
    dist::launch(ranks_of(folder, 2, "cut -d' ' -f5 /proc/$$/stat > $1/group$FOVEA_RANK"));
    const std::string zero = file_text(folder / "group0"), one = file_text(folder / "group1");
    CHECK(zero != one);
    CHECK(contains(file_text(folder / "pids"), zero));
    CHECK(contains(file_text(folder / "pids"), one));
  }

  TEST_CASE("ranks are asked to stop when the launcher is killed") {
    const TempFolder folder;
    const pid_t launcher = ::fork();
    if (launcher == 0) {
      dist::launch(ranks_of(folder, 2,
                            "trap 'echo saved > $1/saved$FOVEA_RANK; exit 75' TERM\n"
                            "echo ready > $1/ready$FOVEA_RANK\nwhile :; do sleep 0.02; done"));
      ::_exit(0);
    }
    awaited(folder / "ready0");
    awaited(folder / "ready1");
    ::kill(launcher, SIGKILL);
    ::waitpid(launcher, nullptr, 0);
    CHECK(awaited(folder / "saved0") == "saved\n");
    CHECK(awaited(folder / "saved1") == "saved\n");
    check_nothing_left(folder);
  }

  TEST_CASE("a program that cannot be run is an error that names it") {
    const TempFolder folder;
    dist::LaunchOptions options = ranks_of(folder, 2, "exit 0");
    options.program = folder / "nothing";
    const std::string message = message_of([&] { dist::launch(options); });
    CHECK(message == options.program + ": cannot be started: No such file or directory");
    check_nothing_left(folder);
  }

  TEST_CASE("the last lines of the rank that failed first are shown with its name, once") {
    const TempFolder folder;
    log::to_file(folder / "log");
    dist::LaunchOptions options =
        ranks_of(folder, 3,
                 "[ $FOVEA_RANK = 1 ] && echo I am 1 >&2\n"
                 "if [ $FOVEA_RANK = 2 ]; then seq 1000 >&2; exit 3; fi\nsleep 600");
    options.grace = milliseconds(50);
    dist::launch(options);
    const std::string text = file_text(folder / "log");
    CHECK(contains(text, "rank 2: 981\n"));
    CHECK(contains(text, "rank 2: 1000\n"));
    CHECK_FALSE(contains(text, "rank 2: 980\n"));
    CHECK_FALSE(contains(text, "I am 1"));
    CHECK(text.find("ended with code 3") == text.rfind("ended with code 3"));
  }
}
