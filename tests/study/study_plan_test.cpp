// From a study's file to runs: their identity, and that every mistake is found before one starts.

#include "study/study_plan.h"

#include <set>

#include <doctest/doctest.h>

#include "config/yaml.h"
#include "core/error.h"
#include "study_case.h"

using namespace fovea;
using namespace fovea::test;

TEST_CASE("runs come seed by seed, and each has what its cell and seed say") {
  const auto runs = StudyCase().plan("grid: {model.n_layer: [1, 2]}\nseeds: [7, 9]");
  REQUIRE(runs.size() == 4);
  CHECK(runs[1].cell == 1);
  CHECK(runs[1].seed == 7);
  CHECK(runs[1].config.seed == 7);
  CHECK(runs[1].config.model.n_layer == 2);
  CHECK(runs[2].cell == 0);
  CHECK(runs[2].seed == 9);
  std::set<std::string> ids;
  for (const auto& run : runs)
    ids.insert(run.id);
  CHECK(ids.size() == 4);
}

TEST_CASE("what no result depends on changes no identity, what does depend changes it") {
  const StudyCase folder;
  const auto id = [&](const std::string& text) { return folder.plan(text)[0].id; };
  const std::string plain = id("points: [{}]");
  CHECK(plain.size() == 16);
  CHECK(id("points: [{train.threads: 2, log.interval: 1}]") == plain);
  CHECK(id("name: other\nset: {ckpt.interval: 2}\npoints: [{name: x}]") == plain);
  CHECK(id("points: [{optim.lr: 0.02}]") != plain);
  CHECK(id("points: [{train.max_time: 5m}]") != plain);
  CHECK(id("points: [{train.max_time: 5m}]") != id("points: [{train.max_time: 6m}]"));
}

TEST_CASE("the text that a run is told reads back as the same run") {
  for (const auto& run :
       StudyCase().plan("grid: {model.attention.kind: [standard, linear, performer, longformer]}\n"
                        "set: {train.micro_batch_size: auto}")) {
    const auto again = train::RunConfig::from(config::parse(run.config.resolved.yaml(), "again"));
    CHECK(again.result_hash() == run.config.result_hash());
  }
}

TEST_CASE("settings of the command line stand between the study's and the cell's") {
  const StudyCase folder;
  const std::string text = "set: {optim.lr: 0.5, model.n_embd: 32}\npoints: [{optim.lr: 0.1}]";
  const auto run = folder.plan(text, {"optim.lr=0.3", "model.n_embd=64"})[0];
  CHECK(run.config.optim.lr == 0.1);
  CHECK(run.config.model.n_embd == 64);
  CHECK(contains(message_of([&] { folder.plan(text, {"seed=3"}); }), "seed belongs to the study"));
}

TEST_CASE("two cells with the same results are refused, naming both") {
  CHECK(StudyCase().complaint("points:\n  - {name: a}\n  - {name: b, train.threads: 2}") ==
        "study.yaml:3:5: 'a' and 'b' are the same runs: no result depends on what they differ in; "
        "leave one of them out");
}

TEST_CASE("the mistakes of all cells are told at once, with their places and cells") {
  CHECK(StudyCase().complaint("grid:\n  model.n_layer: [1, 0]\n  model.n_embd: [16, 17, wide]") ==
        "base.yaml:4:29: model.n_embd is 17, but must be a multiple of model.n_head (2) unless "
        "model.head_dim is given (in 1/17; 0/17)\n"
        "study.yaml:3:26: model.n_embd is 'wide', but must be an integer in [1, 65536] (in 1/wide; "
        "0/wide)\n"
        "study.yaml:2:22: model.n_layer is 0, but must be an integer in [1, 1024] (in 0/16; 0/17; "
        "0/wide)");
}

TEST_CASE("mistakes of base and seeds are told once") {
  const StudyCase folder;
  folder.folder.put("bad.yaml", "train: {max_steps: none}\n");
  const std::string said = folder.complaint("base: bad.yaml\ngrid: {model.n_layer: [1, 2]}");
  CHECK(contains(said, "bad.yaml:1:20: train.max_steps is 'none'"));
  CHECK(contains(said, "(in every cell)"));
  CHECK(folder.complaint("points: [{}]\nbase: none.yaml")
            .starts_with("study.yaml:2:7: base: none.yaml: cannot be read"));
  CHECK(contains(folder.complaint("points: [{model.n_layers: 2}]"), "did you mean model.n_layer?"));
  folder.folder.put("resumes.yaml", "train: {resume: never, max_steps: 2}\n");
  CHECK(contains(folder.complaint("points: [{}]\nbase: resumes.yaml"),
                 "resumes.yaml:1:17: train.resume cannot be given"));
}

TEST_CASE("mistakes of the file and of configurations are told at once") {
  const StudyCase folder;
  const auto said = [&](const std::string& text) {
    return message_of([&] { study::plan_study(folder.file(text), {}); });
  };
  const std::string all = said(
      "grid: {model.n_layers: [1, 1], optim.lr: [1e-3, -1], seed: [1]}\nseeds: [1, 1, x]\n"
      "baseline: nothing\n");
  for (const char* part :
       {"model.n_layers has 1 twice", "seeds has 1 twice", "seeds has 'x'", "baseline is 'nothing'",
        "did you mean model.n_layer?", "optim.lr is -1", "seed cannot be varied"})
    CHECK_MESSAGE(contains(all, part), all);
  CHECK(lines_in(all) == 6);
  // Settings that were left out make no cells equal, and without a base the file alone is told.
  CHECK(lines_in(said("points: [{name: a, seed: 3}, {name: b, seed: 4}]")) == 1);
  CHECK(contains(said("points: [{}]\nseeds: [1, 1]\nbase: none.yaml"), "twice\n"));
  CHECK(study::plan_study(folder.file("points: [{}]"), {}).runs.size() == 3);
}

TEST_CASE("a metric that no run will report is refused before any starts") {
  const StudyCase folder;
  const auto said = [&](const std::string& metrics) {
    return message_of([&] {
      const auto [study, runs] =
          study::plan_study(folder.file("points: [{}]\nmetrics: " + metrics), {});
      study::check_runs(study, runs);
    });
  };
  CHECK(contains(said("[loss, perplxity]"),
                 "study.yaml:2:17: metrics has 'perplxity', but no run reports it; did you mean "
                 "perplexity?"));
  CHECK(contains(said("wer"),
                 "study.yaml:2:10: metrics has 'wer', but no run reports it; there are "
                 "loss, perplexity, accuracy, nats, targets"));
  CHECK(contains(said("[bits_per_byte]"), "no run reports it"));  // ids without a text
  CHECK(said("[loss, accuracy, targets]") == "");
  // What was tried at each length is known by the results.
  folder.folder.put("niah.yaml", R"(
task: niah
data: {kind: niah, niah: {train_examples: 50, validation_examples: 12, test_examples: 5}}
model: {n_layer: 1, n_head: 2, n_embd: 16, block_size: 64}
train: {global_batch_size: 4, max_steps: 4}
sched: {kind: constant}
)");
  CHECK(said("[recall_64]\nbase: niah.yaml") == "");
}

TEST_CASE("what only a model or its data refuses is found without training") {
  const StudyCase folder;
  const auto check = [&](const std::string& text) {
    const study::StudyFile study = folder.read(text);
    const auto runs = study::plan_runs(study, {});
    study::check_runs(study, runs);
  };
  check("grid: {model.attention.kind: [standard, linear]}");
  // linformer has no causal form unless one is chosen.
  const std::string said = message_of(
      [&] { check("grid: {model.attention.kind: [standard, linformer]}\nseeds: [1, 2]"); });
  CHECK_MESSAGE(contains(said, "linformer"), said);
  CHECK_MESSAGE(contains(said, "(in linformer)"), said);
  CHECK(lines_in(said) == 0);
  try {
    check("points: [{data.kind: text, data.path: nowhere.txt}]");
    FAIL("data that is not there was not missed");
  } catch (const Error& e) {
    CHECK(e.code() == ExitCode::data);
    CHECK(contains(e.what(), "nowhere.txt"));
  }
}
