// Ranks under a real Slurm of this machine. Needs Debian's slurm-wlm and munge.

#include <filesystem>

#include <doctest/doctest.h>

#include "data/temp_folder.h"
#include "process.h"
#include "skip.h"

using namespace fovea::test;

TEST_SUITE("end to end") {
  TEST_CASE("two tasks of srun end in the metrics of one process") {
    if (!std::filesystem::exists("/usr/sbin/slurmctld") ||
        !std::filesystem::exists("/usr/sbin/munged"))
      FOVEA_SKIP("needs slurm-wlm and munge");
    const TempFolder folder;
    const std::string root = FOVEA_SOURCE_DIR;
    const std::vector<std::string> train = {FOVEA_BINARY, "train", root + "/configs/smoke/lm.yaml",
                                            "train.device=cpu", "train.max_steps=20"};
    std::vector<std::string> alone = train,
                             ranks = {root + "/scripts/slurm_local.sh", "srun", "--ntasks=2"};
    alone.push_back("out_dir=" + (folder / "alone"));
    ranks.insert(ranks.end(), train.begin(), train.end());
    ranks.push_back("out_dir=" + (folder / "ranks"));
    REQUIRE(run_program(alone).code == 0);
    const Finished run = run_program(ranks);
    REQUIRE_MESSAGE(run.code == 0, run.err);
    CHECK(contains(run.err, "2 ranks on "));
    CHECK(file_text(folder / "ranks/metrics.jsonl") == file_text(folder / "alone/metrics.jsonl"));
  }
}
