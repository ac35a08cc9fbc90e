// Whose failure it is, as the ranks tell their launcher.

#include "dist/verdict.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <climits>
#include <string>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include "core/log.h"
#include "data/temp_folder.h"
#include "dist/launcher.h"
#include "process.h"

using namespace fovea;
using namespace fovea::test;
using dist::Verdict;
using std::chrono::milliseconds;

namespace {

class Pipe {
 public:
  Pipe() { REQUIRE(::pipe2(ends_.data(), O_CLOEXEC | O_NONBLOCK) == 0); }
  ~Pipe() {
    ::close(ends_[0]);
    ::close(ends_[1]);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  int writing() const { return ends_[1]; }
  std::string text() const {
    std::string out(1 << 16, '\0');
    const ssize_t n = ::read(ends_[0], out.data(), out.size());
    out.resize(static_cast<std::size_t>(std::max<ssize_t>(0, n)));
    return out;
  }

 private:
  std::array<int, 2> ends_{};
};

std::string bytes_of(const Verdict& verdict) {
  const Pipe pipe;
  dist::send_verdict(pipe.writing(), verdict);
  return pipe.text();
}

// Ranks that run the script, beside files v0, v1, ... with what rank 0, 1, ... has to say of it;
// `say N` says it.
dist::LaunchResult launched(const TempFolder& folder, const std::vector<Verdict>& verdicts,
                            const std::string& script, int restarts = 0) {
  for (std::size_t i = 0; i < verdicts.size(); ++i)
    folder.put("v" + std::to_string(i), bytes_of(verdicts[i]));
  log::console(false);
  dist::LaunchOptions options;
  options.program = "/bin/sh";
  options.arguments = {
      folder.put("rank.sh",
                 "say() { cat $F/v$1 > /proc/self/fd/$FOVEA_VERDICT; }\nF=$1\n" + script),
      folder.path()};
  options.processes = 3;
  options.max_restarts = restarts;
  options.backoff = milliseconds(1);
  options.grace = options.until_killed = milliseconds(500);
  return dist::launch(options);
}

}  // namespace

TEST_SUITE("verdicts") {
  TEST_CASE("what is said comes out whole, in order, and piece by piece") {
    const Pipe pipe;
    dist::send_verdict(pipe.writing(), {2, 1, ExitCode::data, "x: is cut\nand more"});
    dist::send_verdict(pipe.writing(), {0, -1, ExitCode::communication, ""});
    const std::string all = pipe.text();
    for (std::size_t cut = 0; cut <= all.size(); ++cut) {
      std::string bytes = all.substr(0, cut);
      std::vector<Verdict> got = dist::take_verdicts(bytes);
      bytes += all.substr(cut);
      for (Verdict& verdict : dist::take_verdicts(bytes))
        got.push_back(std::move(verdict));
      REQUIRE(got.size() == 2);
      CHECK(got[0].by == 2);
      CHECK(got[0].culprit == 1);
      CHECK(got[0].code == ExitCode::data);
      CHECK(got[0].message == "x: is cut\nand more");
      CHECK(got[1].by == 0);
      CHECK(got[1].culprit == -1);
      CHECK(got[1].message.empty());
      CHECK(bytes.empty());
    }
  }

  TEST_CASE("a long message is cut to what a pipe takes in one piece") {
    std::string bytes =
        bytes_of({0, 1, ExitCode::failed, "beginning " + std::string(100'000, 'x')});
    CHECK(bytes.size() <= PIPE_BUF);
    const std::vector<Verdict> got = dist::take_verdicts(bytes);
    REQUIRE(got.size() == 1);
    CHECK(got[0].message.starts_with("beginning xxx"));
  }

  TEST_CASE("without a launcher, or with a deaf one, nothing happens") {
    dist::send_verdict(-1, {0, 0, ExitCode::failed, "unheard"});
    const Pipe pipe;
    for (int i = 0; i < 100; ++i)
      dist::send_verdict(pipe.writing(), {0, 0, ExitCode::failed, std::string(3000, 'x')});
    CHECK(pipe.text().size() > 1000);
  }

  TEST_CASE("all end with one code, and the rank that failed is named with its own reason") {
    const TempFolder folder;
    const dist::LaunchResult result =
        launched(folder,
                 {{0, 1, ExitCode::data, "rank 1 (host h, pid 7) ended: its disk"},
                  {1, 1, ExitCode::data, "its disk"}},
                 "[ $FOVEA_RANK = 0 ] && say 0\n[ $FOVEA_RANK = 1 ] && sleep 0.2 && say 1\nexit 3");
    CHECK(result.code == ExitCode::data);
    CHECK(result.message.starts_with("rank 1 (pid "));
    CHECK(result.message.ends_with(") ended with code 3: its disk"));
  }

  TEST_CASE("a rank that fails by itself is named though others end first, with another code") {
    const TempFolder folder;
    const dist::LaunchResult result =
        launched(folder, {{0, 2, ExitCode::non_finite, "rank 2 ended: no number"}},
                 "[ $FOVEA_RANK = 0 ] && say 0 && exit 8\n[ $FOVEA_RANK = 1 ] && exit 5\n"
                 "sleep 0.2; exit 4");
    CHECK(result.code == ExitCode::non_finite);
    CHECK(result.message.starts_with("rank 2 (pid "));
    CHECK(result.message.ends_with(") ended with code 4: rank 2 ended: no number"));
  }

  TEST_CASE("a rank that hangs is named by the others, and what was seen of it is said") {
    const TempFolder folder;
    const dist::LaunchResult result = launched(
        folder, {{0, 1, ExitCode::communication, "rank 1 hangs in phase 'update'"}},
        "trap '' TERM\n[ $FOVEA_RANK = 1 ] && sleep 600\n[ $FOVEA_RANK = 0 ] && say 0\nexit 6");
    CHECK(result.code == ExitCode::communication);
    CHECK(result.message.starts_with("rank 1 (pid "));
    CHECK(
        result.message.ends_with(") did not react and was killed: rank 1 hangs in phase 'update'"));
  }

  TEST_CASE("a device that is missing at the first start is not worth another, a lost one is") {
    const Verdict missing{1, 1, ExitCode::device, "no GPU", true};
    const Verdict lost{1, 1, ExitCode::device, "a GPU fell off the bus", false};
    const std::string script = "[ $FOVEA_RANK = 1 ] || exec sleep 10\necho >> $F/starts\n";
    for (const bool first : {true, false}) {
      const TempFolder folder;
      const std::string say = first ? "say 0" : "say $(($(wc -l < $F/starts) == 1))";
      const dist::LaunchResult result =
          launched(folder, {missing, lost}, script + say + "; exit 8", 2);
      CHECK(result.code == ExitCode::device);
      CHECK(file_text(folder / "starts") == (first ? "\n" : "\n\n\n"));
    }
  }

  TEST_CASE("where no rank alone is to blame, the first one says why") {
    const TempFolder folder;
    const dist::LaunchResult result =
        launched(folder, {{0, -1, ExitCode::communication, "ranks 1, 2 of 3 are not here"}},
                 "[ $FOVEA_RANK = 0 ] && say 0 && exit 6\nsleep 0.2; exit 6");
    CHECK(result.message.starts_with("rank 0 (pid "));
    CHECK(result.message.ends_with(") ended with code 6: ranks 1, 2 of 3 are not here"));
  }
}
