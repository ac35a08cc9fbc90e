// What an evaluation refuses, and what it leaves alone.

#include "train/evaluate.h"

#include <filesystem>

#include <doctest/doctest.h>
#include <sys/stat.h>

#include "core/error.h"
#include "data/safetensors.h"
#include "skip.h"
#include "tiny_run.h"
#include "train/import/imported_model.h"

using namespace fovea;
using namespace fovea::train;
using namespace fovea::test;
namespace fs = std::filesystem;

namespace {

// A run of bytes, one step long.
std::string trained(const TemporaryFolder& folder) {
  std::string text;
  for (int i = 0; i < 400; ++i)
    text += "line " + std::to_string(i * i % 97) + "\n";
  overwrite(folder.path("train.txt"), text);
  run_tiny(folder.path("run"), {"data.kind=text", "data.path=" + folder.path("train.txt"),
                                "train.max_steps=1", "eval.interval=0"});
  return folder.path("run");
}

std::string failure(const std::string& model, const EvaluateOptions& options = {}) {
  try {
    evaluate(model, {}, options);
  } catch (const Error& e) {
    return std::to_string(static_cast<int>(e.code())) + " " + e.what();
  }
  return "none";
}

}  // namespace

TEST_CASE("losses replace no pipe, folder or lost link") {
  const TemporaryFolder folder;
  const std::string run = trained(folder), out = folder.path("out");
  fs::create_directories(out + "/folder");
  REQUIRE(::mkfifo((out + "/pipe").c_str(), 0600) == 0);
  fs::create_symlink("pipe", out + "/to_pipe");
  fs::create_symlink("none", out + "/lost");
  for (const char* name : {"pipe", "folder", "to_pipe", "lost"}) {
    const std::string path = out + "/" + name;
    CHECK_MESSAGE(failure(run, {.losses = path}).starts_with("3 " + path + ": "), name);
  }
  CHECK(fs::is_fifo(fs::symlink_status(out + "/pipe")));
  CHECK(fs::is_symlink(out + "/to_pipe"));
  CHECK(fs::is_symlink(out + "/lost"));
  CHECK(fs::is_empty(out + "/folder"));
  CHECK(std::distance(fs::directory_iterator(out), {}) == 4);
}

TEST_CASE("losses replace what a link leads to, and the link stays") {
  const TemporaryFolder folder;
  const std::string run = trained(folder), link = folder.path("link");
  overwrite(folder.path("old"), "old");
  fs::create_symlink("old", link);
  CHECK(failure(run, {.losses = link}) == "none");
  CHECK(fs::is_symlink(link));
  CHECK(data::SafetensorsFile(folder.path("old")).find("losses") != nullptr);
}

TEST_CASE("losses that cannot be written are found before the model is opened") {
  const TemporaryFolder folder;
  const std::string none = folder.path("none"), path = none + "/losses";
  CHECK(failure(none, {.losses = path}).starts_with("3 " + path + ": cannot be created: No such"));
  CHECK(failure(none).starts_with("7 "));
  // What was only tried is not left behind.
  CHECK(failure(none, {.losses = folder.path("losses")}).starts_with("7 "));
  CHECK(fs::is_empty(folder.path()));
}

TEST_CASE("a checkpoint without a manifest is not whole, and no model of another program") {
  const TemporaryFolder folder;
  const std::string checkpoint = newest(trained(folder));
  fs::remove(checkpoint + "/manifest.json");
  const std::string whole =
      "7 " + checkpoint + "/manifest.json: is missing, so the checkpoint is not whole";
  CHECK(failure(checkpoint) == whole);
  CHECK_FALSE(is_foreign_model(checkpoint));
  for (const char* file : {"", "/model.safetensors"})
    CHECK_THROWS_WITH_AS(import_model(checkpoint + file), whole.substr(2).c_str(), CheckpointError);
}

TEST_CASE("a folder that holds nothing of a checkpoint is called none") {
  const TemporaryFolder folder;
  overwrite(folder.path("a.txt"), "words");
  CHECK(failure(folder.path()) ==
        "7 " + folder.path() + ": is neither a run folder, a checkpoint nor a model");
}

TEST_CASE("a text without named splits is scored as all of it, wherever the split is told") {
  const TemporaryFolder folder;
  const std::string run = trained(folder);
  const std::vector<std::string> whole = {"data.path=" + folder.path("train.txt")};
  const EvaluateResult all = evaluate(run, whole);
  CHECK(all.split == "all");
  CHECK(all.split == all.text->split);
  CHECK(evaluate(run).split == "validation");
}

TEST_SUITE("with test data") {
  TEST_CASE("a model of another program has no data of its own, and the error names it") {
    const std::string model = test_data("models/tiny_gpt2");
    if (model.empty()) FOVEA_SKIP("the model is not there");
    CHECK(failure(model).starts_with("2 " + model + ": data.path is missing"));
  }
}
