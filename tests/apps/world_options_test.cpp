// The flags of a run of several processes: what they refuse, and who speaks.

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "data/temp_folder.h"
#include "process.h"

using namespace fovea::test;

namespace {

const std::string kSmoke = std::string(FOVEA_SOURCE_DIR) + "/configs/smoke/lm.yaml";

std::vector<std::string> train_into(const std::string& folder, std::vector<std::string> more) {
  std::vector<std::string> arguments = {
      "train",           kSmoke,          "out_dir=" + folder, "train.max_steps=4",
      "model.n_layer=1", "log.interval=1"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

std::string refusal(const std::vector<std::string>& more) {
  const TempFolder folder;
  const Finished run = run_fovea(train_into(folder / "run", more));
  CHECK(run.code == 2);
  CHECK_FALSE(std::filesystem::exists(folder / "run"));
  return run.err;
}

// The child of `launcher` with that rank.
pid_t child(pid_t launcher, int rank) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::string stat, environment;
    std::ifstream stat_file(entry.path() / "stat"), environment_file(entry.path() / "environ");
    std::getline(stat_file, stat);
    std::getline(environment_file, environment);
    std::istringstream fields(stat.substr(std::min(stat.size(), stat.rfind(')') + 1)));
    std::string state, parent;
    fields >> state >> parent;
    const std::string own = "FOVEA_RANK=" + std::to_string(rank) + '\0';
    if (parent == std::to_string(launcher) && contains(environment, own))
      return std::stoi(entry.path().filename().string());
  }
  return -1;
}

}  // namespace

TEST_SUITE("world options") {
  TEST_CASE("flags that contradict each other are refused before anything starts") {
    CHECK(contains(refusal({"--nproc", "2", "--gpus", "2"}), "give one of them"));
    CHECK(contains(refusal({"--gpus", "two"}), "'two' is neither a number of GPUs nor all"));
    CHECK(contains(refusal({"--gpus", "0"}), "'0' is neither a number of GPUs nor all"));
    CHECK(contains(refusal({"--nproc", "0"}), "is not a whole number of at least 1"));
    CHECK(contains(refusal({"--nproc", "2", "--min-ranks", "1"}), "without --max-restarts"));
    CHECK(contains(refusal({"--nproc", "2", "--min-ranks", "4", "--max-restarts", "1"}),
                   "--min-ranks 4 is more than the 2 processes"));
    CHECK(contains(refusal({"--gpus", "2", "train.device=cpu"}),
                   "train.device is cpu, but --gpus asks for GPUs"));
    CHECK(contains(refusal({"--nproc", "2", "--profile", "2"}), "--profile records one process"));
  }

  TEST_CASE("a process that a launcher started does not start others") {
    const TempFolder folder;
    for (const std::string flag : {"--nproc", "--gpus", "--max-restarts"}) {
      const Finished run =
          run_program({"env", "RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=1",
                       FOVEA_BINARY, "train", kSmoke, "out_dir=" + (folder / "run"), flag, "2"});
      CHECK(run.code == 2);
      CHECK(contains(run.err, "torchrun started this process as rank 1 of 2: leave out " + flag));
    }
  }

  TEST_CASE("GPUs that are not there are a device error") {
    const TempFolder folder;
    const Finished run =
        run_fovea(train_into(folder / "run", {"--gpus", "1024", "train.global_batch_size=1024",
                                              "train.micro_batch_size=1"}));
    CHECK(run.code == 8);
    CHECK(contains(run.err, "--gpus asks for 1024"));
  }

  TEST_CASE("several processes print one record, wherever --json stands") {
    for (const bool before : {false, true}) {
      const TempFolder folder;
      std::vector<std::string> arguments = train_into(folder / "run", {"--nproc=2"});
      arguments.insert(before ? arguments.begin() : arguments.end(), "--json");
      const Finished run = run_fovea(arguments);
      REQUIRE_MESSAGE(run.code == 0, run.err);
      CHECK(std::count(run.out.begin(), run.out.end(), '\n') == 1);
      const auto record = nlohmann::json::parse(run.out);
      CHECK(record["ok"] == true);
      CHECK(record["step"] == 4);
    }
  }

  TEST_CASE("settings behind -- are the processes' too, and overrides.txt tells the device") {
    const TempFolder folder;
    const Finished run =
        run_fovea(train_into(folder / "run", {"--nproc", "2", "--", "train.threads=1"}));
    REQUIRE_MESSAGE(run.code == 0, run.err);
    CHECK(contains(file_text(folder / "run/overrides.txt"), "train.threads=1\ntrain.device=cpu\n"));
  }

  TEST_CASE("a mistake in the configuration is told once") {
    const TempFolder folder;
    const Finished run = run_fovea(train_into(folder / "run", {"--nproc", "2", "model.n_layr=2"}));
    CHECK(run.code == 2);
    CHECK(contains(run.err, "n_layr"));
    CHECK(run.err.find("error:") == run.err.rfind("error:"));
  }

  TEST_CASE("where rank 0 cannot, the launcher prints the record of the failure") {
    const TempFolder folder;
    const Finished run =
        run_fovea(train_into(folder / "run", {"--nproc", "2", "--json", "train.max_steps=100000"}),
                  {"step 2/", [](pid_t launcher) { ::kill(child(launcher, 0), SIGKILL); }});
    CHECK(run.code == 6);
    CHECK(std::count(run.out.begin(), run.out.end(), '\n') == 1);
    const auto record = nlohmann::json::parse(run.out);
    CHECK(record["ok"] == false);
    CHECK(record["error"]["code"] == 6);
    CHECK(contains(record["error"]["message"], "was killed by signal 9 (SIGKILL)"));
  }

  TEST_CASE("one process with --max-restarts goes on after it was killed") {
    const TempFolder folder;
    const Finished run =
        run_fovea(train_into(folder / "run", {"--max-restarts", "1", "ckpt.interval=1"}),
                  {"step 2/", [](pid_t launcher) { ::kill(child(launcher, 0), SIGKILL); }});
    CHECK_MESSAGE(run.code == 0, run.err);
    CHECK(contains(run.err, "restart 1 of 1 in 1 s with 1 process; last checkpoint known: step "));
    CHECK(contains(run.err, "resuming from"));
  }

  TEST_CASE("a stopped rank is named and the run ends") {
    const TempFolder folder;
    const Finished run =
        run_fovea(train_into(folder / "run",
                             {"--nproc", "2", "train.max_steps=100000", "distributed.timeout=2"}),
                  {"step 2/", [](pid_t launcher) { ::kill(child(launcher, 1), SIGSTOP); }});
    CHECK(run.code == 6);
    CHECK(contains(run.err, "error: rank 1 (host "));
    CHECK(contains(run.err, ") did not react and was killed"));
  }
}
