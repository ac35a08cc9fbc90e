// The binary trains, stops, resumes, evaluates and inspects, as a user would have it do.

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "data/temp_folder.h"
#include "process.h"

using namespace fovea::test;

namespace {

const std::string kSmoke = std::string(FOVEA_SOURCE_DIR) + "/configs/smoke/lm.yaml";

// The smoke config, smaller still, into a folder of the test.
std::vector<std::string> train_into(const std::string& folder, std::vector<std::string> more = {}) {
  std::vector<std::string> arguments = {"train",
                                        kSmoke,
                                        "out_dir=" + folder,
                                        "model.n_layer=1",
                                        "model.n_embd=32",
                                        "train.max_steps=40",
                                        "data.markov.test_examples=32",
                                        "log.interval=1"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

std::string weights(const std::string& folder) {
  return file_text(folder + "/ckpt/latest/model.safetensors");
}

}  // namespace

TEST_SUITE("end to end") {
  TEST_CASE("a run trains, and eval of its folder gives the metrics it ended with") {
    const TempFolder folder;
    const Finished train = run_fovea(train_into(folder / "run", {"--json"}));
    REQUIRE_MESSAGE(train.code == 0, train.err);
    const auto record = nlohmann::json::parse(train.out);
    CHECK(record["step"] == 40);
    CHECK(record["ending"] == "finished");

    const Finished eval = run_fovea({"eval", folder / "run", "--json"});
    REQUIRE_MESSAGE(eval.code == 0, eval.err);
    const auto evaluation = nlohmann::json::parse(eval.out);
    CHECK(evaluation["step"] == 40);
    CHECK(evaluation["metrics"] == record["metrics"]);
  }

  TEST_CASE("a run stopped by SIGTERM exits with 75, and resumed ends in the same bytes") {
    const TempFolder folder;
    REQUIRE(run_fovea(train_into(folder / "straight")).code == 0);
    const Finished stopped = run_fovea(train_into(folder / "stopped"),
                                       {"step 7/", [](pid_t id) { ::kill(id, SIGTERM); }});
    CHECK_MESSAGE(stopped.code == 75, stopped.err);
    REQUIRE(weights(folder / "stopped") != weights(folder / "straight"));

    const Finished resumed = run_fovea(train_into(folder / "stopped"));
    REQUIRE_MESSAGE(resumed.code == 0, resumed.err);
    CHECK_FALSE(weights(folder / "straight").empty());
    CHECK(weights(folder / "stopped") == weights(folder / "straight"));
    CHECK(file_text(folder / "stopped/metrics.jsonl") ==
          file_text(folder / "straight/metrics.jsonl"));
  }

  TEST_CASE("a run killed without warning ends in the same bytes when it is started again") {
    const TempFolder folder;
    REQUIRE(run_fovea(train_into(folder / "straight", {"ckpt.interval=5"})).code == 0);
    const Finished killed = run_fovea(train_into(folder / "killed", {"ckpt.interval=5"}),
                                      {"step 13/", [](pid_t id) { ::kill(id, SIGKILL); }});
    CHECK(killed.code == 128 + SIGKILL);
    REQUIRE(run_fovea(train_into(folder / "killed", {"ckpt.interval=5"})).code == 0);
    CHECK(weights(folder / "killed") == weights(folder / "straight"));
    CHECK(file_text(folder / "killed/metrics.jsonl") ==
          file_text(folder / "straight/metrics.jsonl"));
  }

  TEST_CASE("threads, recomputation and the order of micro-batches change no byte") {
    const TempFolder folder;
    REQUIRE(run_fovea(train_into(folder / "one", {"--threads", "1"})).code == 0);
    REQUIRE(run_fovea(train_into(folder / "other", {"--threads", "2", "train.recompute=true",
                                                    "train.micro_order=reverse"}))
                .code == 0);
    CHECK_FALSE(weights(folder / "one").empty());
    CHECK(weights(folder / "one") == weights(folder / "other"));
    CHECK(file_text(folder / "one/metrics.jsonl") == file_text(folder / "other/metrics.jsonl"));
  }

  TEST_CASE("--print-config prints a config that means the same, and trains nothing") {
    const TempFolder folder;
    const Finished first = run_fovea(train_into(folder / "run", {"--print-config"}));
    REQUIRE(first.code == 0);
    const std::string file = folder.put("printed.yaml", first.out);
    CHECK(run_fovea({"train", file, "--print-config"}).out == first.out);
    CHECK_FALSE(std::filesystem::exists(folder / "run"));
  }

  TEST_CASE("--dry-run predicts memory and leaves no folder") {
    const TempFolder folder;
    const Finished dry = run_fovea(train_into(folder / "run", {"--dry-run", "--json"}));
    REQUIRE_MESSAGE(dry.code == 0, dry.err);
    CHECK(nlohmann::json::parse(dry.out)["prediction"].is_object());
    CHECK_FALSE(std::filesystem::exists(folder / "run"));
  }

  TEST_CASE("inspect recognises a run folder, a checkpoint and its tensors") {
    const TempFolder folder;
    REQUIRE(run_fovea(train_into(folder / "run", {"train.max_steps=2"})).code == 0);
    const auto kind_of = [](const std::string& path) {
      const Finished run = run_fovea({"inspect", path, "--json"});
      REQUIRE_MESSAGE(run.code == 0, run.err);
      return nlohmann::json::parse(run.out)["kind"].get<std::string>();
    };
    CHECK(kind_of(folder / "run") == "run folder");
    CHECK(kind_of(folder / "run/ckpt/latest") == "checkpoint");
    CHECK(kind_of(folder / "run/ckpt/latest/model.safetensors") == "safetensors");
    CHECK(kind_of(kSmoke) == "config");
  }
}
