// Every configuration of configs/lm: checked as it is, and trained for a few steps when made small.

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "data/temp_folder.h"
#include "process.h"

using namespace fovea::test;

namespace {

const std::string kFolder = std::string(FOVEA_SOURCE_DIR) + "/configs/lm/";

// Data of the kinds that the configurations ask for, and a model to go on from.
struct Inputs {
  Inputs() {
    std::string text, ids;
    for (int i = 0; i < 300; ++i)
      text += "the cat sat on the mat " + std::to_string(i * i % 97) + " times\n";
    for (int i = 0; i < 6000; ++i) {
      const int id = i * i % 251;
      ids += {static_cast<char>(id % 256), static_cast<char>(id / 256)};
    }
    folder.put("books/train/1.txt", text);
    folder.put("books/validation/2.txt", text.substr(0, 2000));
    for (const char* split : {"train", "valid", "test"})
      folder.put(std::string("wikitext/wiki.") + split + ".tokens", text);
    folder.put("tokenizer/merges.txt", "#version: 0.2\nt h\nth e\n");
    folder.put("ids/train.bin", ids);
    folder.put("ids/val.bin", ids.substr(0, 4000));
    const Finished made =
        run_fovea({"train", kFolder + "bytes_cpu.yaml", "data.path=" + (folder / "books"),
                   "out_dir=" + (folder / "given"), "model.n_layer=1", "model.n_embd=16",
                   "model.block_size=32", "train.max_steps=1", "sched.warmup_steps=0"});
    REQUIRE_MESSAGE(made.code == 0, made.err);
  }
  TempFolder folder;
};

struct Case {
  const char* name;
  std::vector<std::string> given;  // what its comment says to give
  double parameters;               // of the model as it is
};

std::vector<Case> cases(const TempFolder& f) {
  const std::string books = "data.path=" + (f / "books"), ids = "data.path=" + (f / "ids");
  return {{"books_bpe", {books, "data.tokenizer=" + (f / "tokenizer")}, 0.9e6},
          {"books_cpu", {books}, 1.8e6},
          {"bytes_cpu", {books}, 0.9e6},
          {"from_checkpoint", {ids, "train.init_from=" + (f / "given")}, 8e3},
          {"gpt2_124m", {ids}, 124e6},
          {"pg19", {ids}, 45e6},
          {"wikitext103", {"data.path=" + (f / "wikitext"), "model.vocab_size=267735"}, 156e6}};
}

Finished train(const Case& c, const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {"train", kFolder + c.name + ".yaml", "--json"};
  arguments.insert(arguments.end(), c.given.begin(), c.given.end());
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run_fovea(arguments);
}

}  // namespace

TEST_SUITE("language model configurations") {
  TEST_CASE("each is tested") {
    std::set<std::string> there, tested;
    for (const auto& entry : std::filesystem::directory_iterator(kFolder))
      there.insert(entry.path().stem().string());
    const TempFolder folder;
    for (const Case& c : cases(folder))
      tested.insert(c.name);
    CHECK(there == tested);
  }

  TEST_CASE("each passes a dry run with what its comment says to give, and has the stated size") {
    const Inputs inputs;
    for (const Case& c : cases(inputs.folder)) {
      INFO(c.name);
      const Finished run = train(c, {"--dry-run"});
      REQUIRE_MESSAGE(run.code == 0, run.err);
      const double parameters =
          nlohmann::json::parse(run.out).at("prediction").at("parameters").get<double>();
      CHECK(parameters == doctest::Approx(c.parameters).epsilon(0.1));
    }
  }

  TEST_CASE("each asks for the data that it needs") {
    const TempFolder folder;
    for (const Case& c : cases(folder)) {
      INFO(c.name);
      const Finished run = run_fovea({"train", kFolder + c.name + ".yaml", "--dry-run"});
      CHECK(run.code == 2);
      CHECK(run.err.find("data.path is missing") != std::string::npos);
    }
    folder.put("text.txt", "text\n");
    const Finished run = run_fovea(
        {"train", kFolder + "books_bpe.yaml", "data.path=" + (folder / "text.txt"), "--dry-run"});
    CHECK(run.code == 3);
    CHECK(run.err.find("tokenizer") != std::string::npos);
  }

  TEST_CASE("each trains, made small") {
    const Inputs inputs;
    for (const Case& c : cases(inputs.folder)) {
      INFO(c.name);
      std::vector<std::string> small = {"out_dir=" + (inputs.folder / c.name),
                                        "train.global_batch_size=4",
                                        "train.micro_batch_size=2",
                                        "train.max_steps=3",
                                        "sched.warmup_steps=1",
                                        "eval.max_batches=1"};
      if (c.name != std::string("from_checkpoint")) {
        for (const char* key : {"model.n_layer=1", "model.n_head=2", "model.n_embd=16",
                                "model.mlp_dim=32", "model.block_size=16", "model.vocab_size=0"})
          small.push_back(key);
      }
      const Finished run = train(c, small);
      REQUIRE_MESSAGE(run.code == 0, run.err);
      const auto record = nlohmann::json::parse(run.out);
      CHECK(record.at("step") == 3);
      CHECK(record.at("metrics").contains("perplexity"));
    }
  }
}
