// The configurations of configs/zoo and configs/niah, and the verbs that make their data.

#include <filesystem>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "core/file.h"
#include "data/temp_folder.h"
#include "process.h"
#include "skip.h"

using namespace fovea::test;
using fovea::read_file;
using Json = nlohmann::json;

namespace {

const std::string kConfigs = std::string(FOVEA_SOURCE_DIR) + "/configs/";

using Words = std::vector<std::string>;

Finished train(const std::string& config, const Words& more) {
  Words command = {"train", kConfigs + config, "--json"};
  command.insert(command.end(), more.begin(), more.end());
  return run_fovea(command);
}

// Few and short examples, few steps.
const Words kSmall = {"model.n_layer=1",           "model.n_embd=16",          "model.n_head=2",
                      "train.global_batch_size=4", "train.micro_batch_size=2", "train.max_steps=4",
                      "sched.warmup_steps=1",      "eval.interval=0",          "train.threads=1"};
Words small(const std::string& out, const Words& more) {
  Words all = kSmall;
  all.push_back("out_dir=" + out);
  all.insert(all.end(), more.begin(), more.end());
  return all;
}
const Words kFewExpressions = {"data.listops.train_examples=50", "data.listops.max_length=24",
                               "data.listops.validation_examples=9", "model.block_size=24",
                               "data.listops.test_examples=9"};

}  // namespace

TEST_SUITE("task configurations") {
  TEST_CASE(
      "each of the zoo passes a dry run as it is, and differs in its attention only by a key") {
    const TempFolder folder;
    folder.put("books/train/1.txt", std::string(5000, 'a'));
    folder.put("books/validation/2.txt", std::string(5000, 'b'));
    const std::string books = "data.path=" + (folder / "books");
    for (const Words& given :
         {Words{"zoo/gpt.yaml", books}, Words{"zoo/encoder.yaml"}, Words{"niah/kv_cpu.yaml"}}) {
      INFO(given[0]);
      Words more(given.begin() + 1, given.end());
      more.push_back("--dry-run");
      const Finished plain = train(given[0], more);
      REQUIRE_MESSAGE(plain.code == 0, plain.err);
      more.push_back("model.attention={kind: standard, kernel: materialised}");
      const Finished other = train(given[0], more);
      REQUIRE_MESSAGE(other.code == 0, other.err);
      CHECK(Json::parse(plain.out)["prediction"]["parameters"] ==
            Json::parse(other.out)["prediction"]["parameters"]);
    }
  }

  TEST_CASE("an encoder of ListOps trains, and is scored against what needs no model") {
    const TempFolder folder;
    const Finished run = train("zoo/encoder.yaml", small(folder / "run", kFewExpressions));
    REQUIRE_MESSAGE(run.code == 0, run.err);
    const Json metrics = Json::parse(run.out).at("metrics");
    CHECK(metrics.at("targets") == 9);
    for (const char* name : {"accuracy", "accuracy_of_always_0", "accuracy_of_first_token"})
      CHECK(metrics.contains(name));
    const Finished text = run_fovea({"generate", folder / "run", "a"});
    CHECK(text.code == 2);
    CHECK(contains(text.err, "classifies sequences"));
  }

  TEST_CASE("two processes classify like one, to the byte") {
    const TempFolder folder;
    Words more = kFewExpressions;
    more.push_back("eval.interval=2");
    more.push_back("model.pool=cls");
    REQUIRE(train("zoo/encoder.yaml", small(folder / "one", more)).code == 0);
    more.insert(more.end(), {"--nproc", "2"});
    const Finished two = train("zoo/encoder.yaml", small(folder / "two", more));
    REQUIRE_MESSAGE(two.code == 0, two.err);
    for (const char* file : {"/metrics.jsonl", "/ckpt/step_00000004/model.safetensors"})
      CHECK(read_file(folder / std::string("two") + file) ==
            read_file(folder / std::string("one") + file));
  }

  TEST_CASE("needles are trained on, and tested by length and depth with one process or two") {
    const TempFolder folder;
    const Finished run = train("niah/kv_cpu.yaml", small(folder / "run", {"model.block_size=16"}));
    REQUIRE_MESSAGE(run.code == 0, run.err);
    const Words test = {"eval",
                        folder / "run",
                        "--json",
                        "data.split=test",
                        "data.niah.test_lengths=[8, 40]",
                        "data.niah.test_examples=3"};
    const Finished one = run_fovea(test);
    REQUIRE_MESSAGE(one.code == 0, one.err);
    const Json metrics = Json::parse(one.out).at("metrics");
    CHECK(metrics.at("targets") == 2 * 5 * 3);
    for (const char* name : {"recall_8", "recall_8_depth_0.25", "recall_40_depth_0.9"})
      CHECK(metrics.contains(name));
    Words both = test;
    both.insert(both.end(), {"--nproc", "2"});
    const Finished two = run_fovea(both);
    REQUIRE_MESSAGE(two.code == 0, two.err);
    CHECK(Json::parse(two.out).at("metrics") == metrics);
  }

  TEST_CASE("data make listops writes the benchmark's files, which train and inspect read") {
    const TempFolder folder;
    const std::string made = folder / "made";
    const Words make = {"data",         "make", "listops", made, "--train",      "20",
                        "--validation", "5",    "--test",  "5",  "--min-length", "3",
                        "--max-length", "24"};
    const Finished first = run_fovea(make);
    REQUIRE_MESSAGE(first.code == 0, first.err);
    const std::string text = read_file(made + "/basic_train.tsv");
    CHECK(text.starts_with("Source\tTarget\r\n"));
    CHECK(std::count(text.begin(), text.end(), '\n') == 21);
    CHECK(run_fovea(make).code == 3);
    Words again = make;
    again.insert(again.end(), {"--overwrite", "--jobs", "3"});
    CHECK(run_fovea(again).code == 0);
    CHECK(read_file(made + "/basic_train.tsv") == text);
    const Finished seen = run_fovea({"inspect", made + "/basic_val.tsv", "--json"});
    CHECK(Json::parse(seen.out)["summary"]["examples"] == 5);
    const Finished run = train("zoo/encoder.yaml",
                               small(folder / "run", {"data.path=" + made, "model.block_size=24"}));
    REQUIRE_MESSAGE(run.code == 0, run.err);
    CHECK(Json::parse(run.out).at("metrics").at("targets") == 5);
    CHECK(run_fovea({"data", "make", "listops", made, "--max-length", "400"}).code == 2);
  }

  TEST_CASE("data make niah writes examples with their answers, and refuses what makes none") {
    const TempFolder folder;
    const std::string file = folder / "needles.jsonl";
    const Words make = {"data", "make", "niah", file, "--count", "4", "--length", "32"};
    REQUIRE(run_fovea(make).code == 0);
    const std::string text = read_file(file);
    CHECK(std::count(text.begin(), text.end(), '\n') == 4);
    const Json first = Json::parse(text.substr(0, text.find('\n')));
    CHECK(first["tokens"].size() == 32);
    CHECK(first["answer"] >= 114);
    CHECK(run_fovea(make).code == 3);
    const std::string other = folder / "other";
    CHECK(run_fovea({"data", "make", "niah", other, "--length", "4", "--needles", "5"}).code == 2);
    CHECK(run_fovea({"data", "make", "niah", other, "--depth", "0.5"}).code == 2);
    CHECK(run_fovea({"data", "make", "niah", other, "--layout", "marked", "--decoys", "2",
                     "--length", "64", "--count", "2", "--split", "test"})
              .code == 0);
    CHECK(contains(read_file(other), "\"depth\":0."));
  }

  TEST_CASE("broken tables end inspect, eval and train with exit code 3 and one line") {
    const TempFolder folder;
    for (const char* name : {"bad_label", "label_out_of_range", "missing_tab", "no_header"}) {
      const std::string path = test_data(std::string("hostile/tsv/listops_") + name + ".tsv");
      if (path.empty()) FOVEA_SKIP("no hostile tables among the test data");
      const Finished seen = run_fovea({"inspect", path});
      CHECK(seen.code == 3);
      CHECK(contains(seen.err, path + ":"));
      CHECK(std::count(seen.err.begin(), seen.err.end(), '\n') == 1);
      const Finished run = train("zoo/encoder.yaml", small(folder / name, {"data.path=" + path}));
      CHECK(run.code == 3);
      CHECK(contains(run.err, path + ":"));
    }
  }
}
