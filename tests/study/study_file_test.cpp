// What a study's file may say, and how a mistake in it is answered.

#include "study/study_file.h"

#include <doctest/doctest.h>

#include "core/error.h"
#include "core/file.h"
#include "study_case.h"

using namespace fovea;
using namespace fovea::test;

using Names = std::vector<std::string>;

TEST_CASE("a grid makes all combinations, the first axis changing slowest") {
  const study::StudyFile study =
      StudyCase().read("grid: {model.n_layer: [1, 2], optim.lr: [3e-4, 1e-3]}");
  CHECK(study.layout.axes == Names{"model.n_layer", "optim.lr"});
  CHECK(names_of(study.cells) == Names{"1/3e-4", "1/1e-3", "2/3e-4", "2/1e-3"});
  CHECK(study.cells[1].labels == Names{"1", "1e-3"});
  CHECK(study.seeds == std::vector<std::int64_t>{1, 2, 3});
  CHECK(study.jobs == 1);
}

TEST_CASE("values with parts are labelled by kind and options, or by the name they are given") {
  const StudyCase folder;
  CHECK(names_of(folder
                     .read("grid: {model.attention: [standard, {kind: nystrom, landmarks: 8}, "
                           "[linear, standard]]}")
                     .cells) == Names{"standard", "nystrom(landmarks=8)", "[linear, standard]"});
  CHECK(names_of(folder.read("grid: {model.attention: {mine: {kind: linear, chunk: 8}}}").cells) ==
        Names{"mine"});
}

TEST_CASE("points are called by their names, or by what they set") {
  const study::StudyFile study =
      StudyCase().read("points: [{}, {name: wide, model.n_embd: 32}, {model.n_layer: 2, seq: 3}]");
  CHECK(study.layout.axes == Names{"point"});
  CHECK(names_of(study.cells) == Names{"base", "wide", "n_layer=2 seq=3"});
  CHECK(study.cells[1].settings.size() == 1);
}

TEST_CASE("base and folder default to the study's place and name") {
  const StudyCase folder;
  const std::string file = folder.folder.put("sub/mine.yaml", "base: ../base.yaml\npoints: [{}]\n");
  const study::StudyFile study = study::read_study(file);
  CHECK(study.base == folder.folder / "base.yaml");
  CHECK(study.out_dir == "studies/mine");
  CHECK(study.layout.study == "mine");
}

TEST_CASE("a baseline is a cell, or a value of some axes") {
  const StudyCase folder;
  const std::string grid = "grid: {model.n_layer: [1, 2], optim.lr: [3e-4, 1e-3]}\n";
  using Labels = std::vector<std::optional<std::string>>;
  CHECK(folder.read(grid + "baseline: 2/3e-4").layout.baseline == Labels{"2", "3e-4"});
  CHECK(folder.read(grid + "baseline: {model.n_layer: 1}").layout.baseline ==
        Labels{"1", std::nullopt});
  CHECK(folder.read(grid).layout.baseline.empty());
  CHECK(folder.complaint(grid + "baseline: 2/3e-5") ==
        "study.yaml:2:11: baseline is '2/3e-5', but no cell has that name; did you mean 2/3e-4?");
  CHECK(folder.complaint(grid + "baseline: {model.n_layer: 7}") ==
        "study.yaml:2:27: baseline: model.n_layer is 7, but there are 1, 2");
  CHECK(contains(folder.complaint(grid + "baseline: {seed: 1}"), "the axes are model.n_layer"));
}

TEST_CASE("an unknown key is answered with the nearest, and all mistakes at once") {
  const std::string said = StudyCase().complaint(
      "gird: {model.n_layer: [1]}\njobs: 0\nseeds: 3\nselect: first\nbase: base.yaml");
  CHECK(said ==
        "study.yaml:1:1: unknown key gird; did you mean grid?\n"
        "study.yaml:1:1: there is nothing to run: give grid or points\n"
        "study.yaml:2:7: jobs is 0, but must be an integer in [1, 1024]\n"
        "study.yaml:3:8: seeds is 3, but must be a list of whole numbers such as [1, 2, 3]\n"
        "study.yaml:4:9: select is 'first', but must be last | best");
}

TEST_CASE("a study without anything to run is refused") {
  const StudyCase folder;
  CHECK(contains(folder.complaint("grid: {}"), "grid is empty, but must be a map"));
  CHECK(contains(folder.complaint("grid: {model.n_layer: []}"), "model.n_layer has no values"));
  CHECK(contains(folder.complaint("grid: {model.n_layer: 2}"), "but must be a list of values"));
  CHECK(contains(folder.complaint("points: []"), "points is empty, but must be a list"));
  CHECK(contains(folder.complaint("points: [3]"), "a point is 3, but must be a map"));
  CHECK(contains(folder.complaint("points: [{}]\nseeds: []"), "seeds is empty"));
  CHECK(contains(folder.complaint("points: [{}]\nseeds: [1, x]"), "seeds has 'x'"));
  CHECK(contains(folder.complaint("grid: {a: [1]}\npoints: [{}]"), "both grid and points"));
  CHECK(contains(folder.complaint("points: [{}]\nbase: "), "base is missing"));
  CHECK(contains(folder.complaint(""), "there is nothing to run"));
}

TEST_CASE("what a study decides itself, and sections, cannot be set") {
  const StudyCase folder;
  CHECK(folder.complaint("grid: {seed: [1, 2]}") ==
        "study.yaml:1:8: seed cannot be varied: a study's seeds stand in its key seeds");
  CHECK(contains(folder.complaint("points: [{out_dir: x}]"), "a folder of its own"));
  CHECK(contains(folder.complaint("set: {train.resume: never}\npoints: [{}]"),
                 "train.resume cannot be set"));
  CHECK(folder.complaint("set: {train: {max_steps: 2}}\npoints: [{}]") ==
        "study.yaml:1:7: train cannot be set: train is a section: name its keys, as in "
        "train.max_steps");
}

TEST_CASE("the same thing twice is refused") {
  const StudyCase folder;
  CHECK(contains(folder.complaint("grid: {model.n_layer: [1, 2, 1]}"), "has 1 twice"));
  CHECK(contains(folder.complaint("points: [{name: a}, {name: a}]"), "called 'a'"));
  CHECK(contains(folder.complaint("points: [{}]\nseeds: [1, 2, 1]"), "seeds has 1 twice"));
}

TEST_CASE("every seed that is none is told at once") {
  const std::string said =
      StudyCase().complaint("points: [{}]\nseeds: [-1, 1.5, 9007199254740992]");
  CHECK(said ==
        "study.yaml:2:9: seeds has -1, but a seed is in [0, 9007199254740991]\n"
        "study.yaml:2:13: seeds has 1.5, but must hold whole numbers\n"
        "study.yaml:2:18: seeds has 9007199254740992, but a seed is in [0, 9007199254740991]");
}

TEST_CASE("a name that would lead out of studies/ is refused") {
  const StudyCase folder;
  for (const char* name : {"../../escape", "a/b", "..", ".", "/tmp/x", "a\\b"}) {
    const std::string said = folder.complaint(std::string("points: [{}]\nname: ") + name);
    CHECK_MESSAGE(said.starts_with(std::string("study.yaml:2:7: name is '") + name + "'"), said);
  }
  CHECK(folder.read("points: [{}]\nname: v1.2..x").layout.study == "v1.2..x");
}

TEST_CASE("docs/studies.md has the table of keys") {
  const std::string docs = read_file(std::string(FOVEA_SOURCE_DIR) + "/docs/studies.md");
  CHECK(contains(docs, config::markdown(study::study_options(), "")));
}

TEST_CASE("a study that would never end is refused") {
  const StudyCase folder;
  std::string values = "0";
  for (int i = 1; i < 150; ++i)
    values += ", " + std::to_string(i);
  CHECK(contains(folder.complaint("grid: {a: [" + values + "], b: [" + values + "]}"),
                 "more than 10000 cells"));
  CHECK(contains(folder.complaint("grid: {a: [" + values + "]}\nseeds: [" + values + "]"),
                 "at most 10000 runs"));
}
