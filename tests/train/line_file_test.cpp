#include "train/line_file.h"

#include <csignal>
#include <filesystem>
#include <functional>

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/error.h"
#include "temporary.h"

using namespace fovea;
using namespace fovea::train;
using test::contents;
using test::overwrite;
using test::TemporaryFolder;

TEST_CASE("reopening at a mark drops what came after it") {
  const TemporaryFolder folder;
  const std::string path = folder.path("lines");
  FileMark mark;
  {
    LineFile file(path, {});
    file.append("one");
    mark = file.mark();
    file.append("two");
    file.sync();
  }
  CHECK(contents(path) == "one\ntwo\n");
  {
    LineFile file(path, mark);
    CHECK(contents(path) == "one\n");
    file.append("three");
    CHECK(file.mark().bytes == 10);
  }
  CHECK(contents(path) == "one\nthree\n");
}

TEST_CASE("the mark's hash is the same whether or not the file was reopened") {
  const TemporaryFolder folder;
  LineFile straight(folder.path("a"), {});
  straight.append("one");
  straight.append("two");
  FileMark mark;
  {
    LineFile first(folder.path("b"), {});
    first.append("one");
    mark = first.mark();
  }
  LineFile second(folder.path("b"), mark);
  second.append("two");
  CHECK(second.mark().xxh3 == straight.mark().xxh3);
}

TEST_CASE("a committed beginning that is cut, altered or missing is a checkpoint error") {
  const TemporaryFolder folder;
  const std::string path = folder.path("metrics.jsonl");
  FileMark mark;
  {
    LineFile file(path, {});
    file.append("{\"step\":1}");
    mark = file.mark();
  }
  const std::string good = contents(path);
  overwrite(path, good.substr(0, good.size() - 1));
  CHECK_THROWS_WITH_AS(LineFile(path, mark), doctest::Contains("metrics.jsonl"), CheckpointError);
  std::string flipped = good;
  flipped[3] ^= 1;
  overwrite(path, flipped);
  CHECK_THROWS_AS(LineFile(path, mark), CheckpointError);
  std::filesystem::remove(path);
  CHECK_THROWS_AS(LineFile(path, mark), CheckpointError);
  overwrite(path, good + "an uncommitted tail");
  CHECK_NOTHROW(LineFile(path, mark));
  CHECK(contents(path) == good);
}

TEST_CASE("a full disk is an error with the path") {
  const TemporaryFolder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit four_bytes{4, 4};
    ::setrlimit(RLIMIT_FSIZE, &four_bytes);
    ::signal(SIGXFSZ, SIG_IGN);
    try {
      LineFile file(folder.path("lines"), {});
      file.append("12345678");
      ::_exit(0);
    } catch (const IoError& e) {
      ::_exit(std::string(e.what()).find("lines") == std::string::npos ? 1 : 42);
    }
  }
  int state = 0;
  ::waitpid(child, &state, 0);
  CHECK(WEXITSTATUS(state) == 42);
}

TEST_CASE("a file that was removed, moved or replaced is noticed at the next line") {
  const TemporaryFolder folder;
  const std::string path = folder.path("metrics.jsonl"), other = folder.path("other");
  const std::function<void()> ways[] = {
      [&] { std::filesystem::remove(path); },
      [&] { std::filesystem::rename(path, other); },
      [&] {
        overwrite(other, "of another run\n");
        std::filesystem::rename(other, path);
      },
  };
  for (const auto& way : ways) {
    LineFile file(path, {});
    file.append("one");
    way();
    CHECK_THROWS_WITH_AS(file.append("two"),
                         doctest::Contains("metrics.jsonl: was removed, moved or replaced"),
                         IoError);
    CHECK_THROWS_AS(file.sync(), IoError);
  }
  CHECK(contents(path) == "of another run\n");
}
