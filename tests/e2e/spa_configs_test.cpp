// The configurations of configs/spa, their studies, and a probe of what they train.

#include <filesystem>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "data/temp_folder.h"
#include "process.h"

using namespace fovea::test;
using Json = nlohmann::json;
using Words = std::vector<std::string>;

namespace {

const std::string kConfigs = std::string(FOVEA_SOURCE_DIR) + "/configs/";

// Books and words, and which of them a configuration reads.
struct Inputs {
  Inputs() {
    std::string text;
    for (int i = 0; i < 600; ++i)
      text += "the cat sat on the mat " + std::to_string(i * i % 97) + " times\n";
    folder.put("books/train/1.txt", text);
    folder.put("books/validation/2.txt", text);
    for (const char* split : {"train", "valid", "test"})
      folder.put(std::string("words/wiki.") + split + ".tokens", text);
  }
  std::string of(const std::string& name) const {
    const bool books = name.find("books") != std::string::npos;
    return "data.path=" + (folder / (books ? "books" : "words"));
  }
  TempFolder folder;
};

std::vector<std::string> files_in(const std::string& folder, const std::string& head) {
  std::vector<std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator(kConfigs + folder)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(head)) out.push_back(name);
  }
  return out;
}

}  // namespace

TEST_SUITE("SPA configurations") {
  TEST_CASE("each passes a dry run as it is") {
    const Inputs inputs;
    const auto names = files_in("spa", "");
    CHECK(names.size() == 2);
    for (const std::string& name : names) {
      INFO(name);
      const Finished run =
          run_fovea({"train", kConfigs + "spa/" + name, inputs.of(name), "--dry-run"});
      CHECK_MESSAGE(run.code == 0, run.err);
    }
  }

  TEST_CASE("every run of each study is sound") {
    const Inputs inputs;
    const auto names = files_in("studies", "spa_");
    CHECK(names.size() == 10);
    for (const std::string& name : names) {
      INFO(name);
      const Finished run =
          run_fovea({"sweep", kConfigs + "studies/" + name, inputs.of(name), "--dry-run"});
      CHECK_MESSAGE(run.code == 0, run.err);
      CHECK(contains(run.out, "all of them sound"));
    }
  }

  TEST_CASE("fixed and learned projections train, made small, and are probed") {
    const Inputs inputs;
    const std::string folder = inputs.folder / "run";
    const Words small = {"model.n_layer=1",          "model.n_embd=64",
                         "model.n_head=1",           "model.mlp_dim=32",
                         "model.block_size=16",      "train.max_steps=4",
                         "sched.warmup_steps=1",     "train.global_batch_size=2",
                         "train.micro_batch_size=2", "eval.max_batches=1",
                         "train.precision=fp32",     "train.resume=never",
                         "eval.interval=2",          "ckpt.interval=4"};
    int tried = 0;
    for (const std::string& name : files_in("spa", "")) {
      for (const char* more :
           {"seed=2",
            "model.attention={kind: spa, pattern: learn, gate: output, prune_every: 1}"}) {
        INFO(name << " " << more);
        const std::string out = folder + std::to_string(++tried);
        Words command = {"train", kConfigs + "spa/" + name, inputs.of(name), more,
                         "out_dir=" + out};
        command.insert(command.end(), small.begin(), small.end());
        const Finished run = run_fovea(command);
        REQUIRE_MESSAGE(run.code == 0, run.err);
        const Finished probe =
            run_fovea({"probe", out, "--seconds", "0", "--seeds", "100", "--json"});
        REQUIRE_MESSAGE(probe.code == 0, probe.err);
        const Json record = Json::parse(probe.out);
        CHECK(record.at("passed") == true);
        CHECK(record.at("tokens") == 16);
        CHECK(record.at("heads").at(0).at("lemma2_ratio") <= 0.5);
        CHECK(contains(record.at("layers").at(0).at("S").get<std::string>(), "its own"));
      }
    }
  }

  TEST_CASE("a probe says what it cannot do") {
    CHECK(run_fovea({"probe"}).code == 2);
    const Finished nothing = run_fovea({"probe", "nowhere"});
    CHECK(nothing.code == 7);
    const Finished layers = run_fovea({"probe", "nowhere", "--layers", "0,x"});
    CHECK(layers.code == 2);
    CHECK(contains(layers.err, "'x' is no layer"));
  }
}
