// The sweep's own work, with a shell script in place of the program that trains.

#include "study/sweep.h"

#include <csignal>
#include <filesystem>
#include <thread>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "core/error.h"
#include "core/file.h"
#include "core/log.h"
#include "core/text.h"
#include "study/ledger.h"
#include "study_case.h"

using namespace fovea;
using namespace fovea::test;
using study::RunState;

namespace {

// $folder: the run's; finish: what a run that finished leaves.
const std::string kHead =
    "#!/bin/sh\n"
    "folder=$(sed -n 's/^out_dir: //p' \"$2\")\n"
    "mkdir -p \"$folder\"\n"
    "finish() {\n"
    "  echo "
    "'{\"status\":\"finished\",\"step\":4,\"max_steps\":4,\"checkpoint_step\":4,\"tokens\":1,"
    "\"seconds\":1,\"metrics\":{\"loss\":2.5}}' > \"$folder/status.json\"\n"
    "}\n";

struct SweepCase : StudyCase {
  SweepCase() { log::console(false); }

  // Runs the study, a shell script training: what `text` says, then the script.
  study::SweepEnd run(const std::string& text, const std::string& script,
                      study::SweepOptions options = {}) const {
    options.program = folder.put("program", kHead + script + "\n");
    std::filesystem::permissions(options.program, std::filesystem::perms::owner_all);
    const study::StudyFile study = read(text);
    std::vector<study::PlannedRun> runs = study::plan_runs(study, {});
    return study::sweep(study, runs, options);
  }
  std::vector<study::LedgerRun> ledger() const { return study::Ledger(folder / "out").runs(); }
  std::string said() const { return read_file(folder / "said"); }
};

const std::string kTwo = "grid: {model.n_layer: [1, 2]}\nseeds: [1]\n";

}  // namespace

TEST_CASE("every run is trained once, and a second sweep starts nothing") {
  const SweepCase c;
  const std::string script = cat("echo $3 $4 >> ", c.folder / "said", "; finish");
  study::SweepOptions options;
  options.jobs = 2;
  options.threads = 8;
  CHECK(c.run(kTwo, script, options).code == ExitCode::ok);
  CHECK(c.said() == "--threads 4\n--threads 4\n");
  const study::SweepEnd again = c.run(kTwo, script);
  CHECK(again.finished == 2);
  CHECK(lines_in(c.said()) == 2);
  CHECK(c.ledger()[1].state == RunState::finished);
}

TEST_CASE("a failed run is kept with its code and words, the others go on, and it is tried again") {
  const SweepCase c;
  const std::string script = cat(
      "case $folder in *1-seed*) if ! test -e ", c.folder / "mended",
      "; then echo 'step 3'; echo 'error: the loss is not finite' >&2; exit 4; fi;; esac; finish");
  const study::SweepEnd end = c.run(kTwo, script);
  CHECK(end.code == ExitCode::failed);
  CHECK(end.finished == 1);
  REQUIRE(end.failed.size() == 1);
  CHECK(end.failed[0].code == 4);
  CHECK(end.failed[0].message == "the loss is not finite");
  CHECK(c.ledger()[0].state == RunState::failed);
  CHECK(c.ledger()[0].code == 4);
  c.folder.put("mended", "");
  CHECK(c.run(kTwo, script).code == ExitCode::ok);
  CHECK(c.ledger()[0].state == RunState::finished);
  CHECK(c.ledger()[0].attempts == 2);
}

TEST_CASE("a run that is killed, or ends well without having finished, has failed") {
  const SweepCase c;
  const study::SweepEnd end =
      c.run(kTwo, "case $folder in *1-seed*) echo step 3; kill -KILL $$;; esac; exit 0");
  REQUIRE(end.failed.size() == 2);
  CHECK(end.failed[0].code == 128 + SIGKILL);
  CHECK(end.failed[0].message == "was killed by signal 9 (SIGKILL); last line: step 3");
  CHECK(end.failed[1].code == 0);
  CHECK(contains(end.failed[1].message, "does not say that the run is finished"));
}

TEST_CASE("a run that stopped by itself is neither finished nor failed, and the sweep says 75") {
  const SweepCase c;
  const study::SweepEnd end = c.run(kTwo, "exit 75");
  CHECK(end.code == ExitCode::stopped);
  CHECK(end.unfinished == 2);
  CHECK(c.ledger()[0].state == RunState::stopped);
}

TEST_CASE("never more runs at a time than jobs, each with a GPU of its own") {
  const SweepCase c;
  study::SweepOptions options;
  options.jobs = 2;
  options.devices = {"3", "5"};
  // Two runs that hold the same GPU at once would find its folder.
  const std::string script =
      cat("cd ", c.folder.path(), "; mkdir gpu$CUDA_VISIBLE_DEVICES || exit 1; sleep 0.1; rmdir ",
          "gpu$CUDA_VISIBLE_DEVICES; echo $CUDA_VISIBLE_DEVICES >> said; finish");
  const std::string text = "grid: {model.n_layer: [1, 2, 3]}\nseeds: [1, 2]\n";
  CHECK(c.run(text, script, options).code == ExitCode::ok);
  CHECK(lines_in(c.said()) == 6);
  CHECK(contains(c.said(), "3"));
  CHECK(contains(c.said(), "5"));
}

TEST_CASE("a run whose folder another process holds is waited for") {
  const SweepCase c;
  const study::StudyFile study = c.read(kTwo);
  const auto runs = study::plan_runs(study, {});
  const std::string held = study::run_folder(study.out_dir, runs[0].folder);
  std::filesystem::create_directories(held);
  const int lock = ::open((held + "/.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  REQUIRE(::flock(lock, LOCK_EX | LOCK_NB) == 0);
  // The second run lets the first one's folder go.
  const std::string freed = c.folder / "freed";
  std::thread holder([&] {
    for (int i = 0; i < 4000 && !std::filesystem::exists(freed); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    ::close(lock);
  });
  const study::SweepEnd end =
      c.run(kTwo, cat("case $folder in *2-seed*) touch ", freed, ";; *) test -e ", freed,
                      " || exit 2;; esac; finish"));
  holder.join();
  CHECK(end.code == ExitCode::ok);
  CHECK(end.finished == 2);
}

TEST_CASE("a second sweep in the same folder is refused while one runs") {
  const SweepCase c;
  std::filesystem::create_directories(c.folder / "out");
  const int lock = ::open((c.folder / "out/.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  REQUIRE(::flock(lock, LOCK_EX | LOCK_NB) == 0);
  const std::string said = message_of([&] { c.run(kTwo, "finish"); });
  ::close(lock);
  CHECK_MESSAGE(contains(said, "another sweep runs in this folder"), said);
}

TEST_CASE("without its ledger a study knows its finished runs by their folders") {
  const SweepCase c;
  const std::string script = cat("echo x >> ", c.folder / "said", "; finish");
  c.run(kTwo, script);
  std::filesystem::remove(study::ledger_file(c.folder / "out"));
  CHECK(c.run(kTwo, script).finished == 2);
  CHECK(lines_in(c.said()) == 2);
}

TEST_CASE("a finished run whose folder is gone is trained again") {
  const SweepCase c;
  const std::string script = cat("echo x >> ", c.folder / "said", "; finish");
  c.run(kTwo, script);
  std::filesystem::remove_all(c.folder / "out/runs");
  CHECK(c.run(kTwo, script).finished == 2);
  CHECK(lines_in(c.said()) == 4);
}

TEST_CASE("a program that is not there ends the sweep with its name") {
  const SweepCase c;
  study::SweepOptions options;
  options.program = c.folder / "nothing";
  const study::StudyFile study = c.read(kTwo);
  std::vector<study::PlannedRun> runs = study::plan_runs(study, {});
  CHECK(contains(message_of([&] { study::sweep(study, runs, options); }),
                 "nothing: cannot be started"));
}

TEST_CASE("a folder that cannot be written is named, with what to do") {
  const SweepCase c;
  c.folder.put("file", "");
  const std::string said =
      message_of([&] { c.run(kTwo + "out_dir: " + (c.folder / "file") + "/out\n", "finish"); });
  CHECK_MESSAGE(contains(said, "the study's folder cannot be written: Not a directory"), said);
  CHECK(contains(said, "choose another out_dir"));
}
