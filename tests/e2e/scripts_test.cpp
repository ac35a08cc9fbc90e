// The scripts around the tests: what they count must be true.

#include <filesystem>

#include <doctest/doctest.h>

#include "data/temp_folder.h"
#include "process.h"

using namespace fovea::test;

namespace {

const std::string kRunTests = std::string(FOVEA_SOURCE_DIR) + "/scripts/run_tests.sh";

std::string program(const TempFolder& folder, const std::string& name, const std::string& body) {
  const std::string file = folder.put(name, "#!/bin/sh\n" + body + "\n");
  std::filesystem::permissions(file, std::filesystem::perms::owner_all);
  return file;
}

std::string last_line(const std::string& text) {
  const std::size_t end = text.find_last_not_of('\n');
  const std::size_t begin = text.rfind('\n', end);
  return text.substr(begin + 1, end - begin);
}

}  // namespace

TEST_SUITE("end to end") {
  TEST_CASE("run_tests.sh adds up what the programs counted") {
    const TempFolder folder;
    const std::string one = program(folder, "one", "echo FOVEA_TESTS passed=3 failed=0 skipped=1");
    const std::string two = program(folder, "two", "echo FOVEA_TESTS passed=4 failed=0 skipped=0");
    const Finished run = run_program({kRunTests, one, two});
    CHECK(run.code == 0);
    CHECK(last_line(run.out) == "7 passed, 0 failed, 1 skipped");
  }

  TEST_CASE("run_tests.sh fails where a test failed") {
    const TempFolder folder;
    const std::string bad =
        program(folder, "bad", "echo FOVEA_TESTS passed=3 failed=2 skipped=0; exit 1");
    const Finished run = run_program({kRunTests, bad});
    CHECK(run.code == 1);
    CHECK(last_line(run.out) == "3 passed, 2 failed, 0 skipped");
  }

  TEST_CASE("run_tests.sh names a program that crashed and counts it as failed") {
    const TempFolder folder;
    const std::string good =
        program(folder, "good", "echo FOVEA_TESTS passed=1 failed=0 skipped=0");
    const std::string crash = program(folder, "crash", "kill -SEGV $$");
    const std::string late =
        program(folder, "late", "echo FOVEA_TESTS passed=2 failed=0 skipped=0; exit 3");
    const Finished run = run_program({kRunTests, good, crash, late});
    CHECK(run.code == 1);
    CHECK(contains(run.out, "CRASHED: crash"));
    CHECK(contains(run.out, "CRASHED: late (exit code 3)"));
    CHECK(last_line(run.out) == "3 passed, 2 failed, 0 skipped");
  }

  TEST_CASE("run_tests.sh fails where nothing ran") {
    const Finished run = run_program({kRunTests});
    CHECK(run.code == 1);
    CHECK(last_line(run.out) == "0 passed, 0 failed, 0 skipped");
  }
}
