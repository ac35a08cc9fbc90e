// What inspect says of a study's file, folder and ledger.

#include "study/inspect_study.h"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "study/ledger.h"
#include "study_case.h"

using namespace fovea;
using namespace fovea::test;
using study::inspect_study;

namespace {

const std::string kTwo =
    "grid: {model.n_layer: [1, 2]}\nseeds: [1, 2]\nbaseline: 1\nmetrics: [loss]\n";

// Made by a sweep that was killed at once.
std::string swept(const StudyCase& c) {
  const study::StudyFile study = c.read(kTwo);
  std::filesystem::create_directories(study.out_dir);
  study::Ledger ledger(study.out_dir, study, study::plan_runs(study, {}));
  ledger.ended(ledger.runs()[0].id, study::RunState::failed, 4, "loss is not finite");
  return study.out_dir;
}

}  // namespace

TEST_CASE("a study's file is summed up without its configurations") {
  const StudyCase c;
  const std::string file = c.file(kTwo);
  c.folder.put("base.yaml", "nonsense: 3\n");
  const auto found = inspect_study(file);
  REQUIRE(found);
  CHECK(found->kind == "study");
  CHECK_MESSAGE(contains(found->text, "2 cells x 2 seeds\n  cells 1, 2\n  seeds 1, 2\n"),
                found->text);
  CHECK(contains(found->text, "axes model.n_layer; baseline 1; metrics loss of the last"));
  CHECK(contains(found->text, "not there: fovea sweep makes it"));
  const auto json = nlohmann::json::parse(found->json);
  CHECK(json["cells"] == nlohmann::json{"1", "2"});
  CHECK(json["seeds"] == nlohmann::json{1, 2});
  CHECK(json["runs"] == 4);
  CHECK(json["base"] == c.folder / "base.yaml");
}

TEST_CASE("a study's folder and its ledger are summed up by the states of the runs") {
  const StudyCase c;
  const std::string folder = swept(c);
  const auto found = inspect_study(folder), ledger = inspect_study(folder + "/ledger.sqlite");
  REQUIRE(found);
  REQUIRE(ledger);
  CHECK(found->kind == "study folder");
  CHECK(ledger->kind == "ledger");
  for (const auto& one : {*found, *ledger}) {
    CHECK_MESSAGE(contains(one.text, "of the study 'study', 4 runs: 1 failed, 3 not started"),
                  one.text);
    const auto json = nlohmann::json::parse(one.json);
    CHECK(json["states"]["failed"] == 1);
    CHECK(json["states"]["finished"] == 0);
    CHECK(json["baseline"] == "1");
    CHECK(json["seeds"] == nlohmann::json{1, 2});
  }
}

TEST_CASE(
    "what is wrong with a study or a ledger is one line, and other files are left to others") {
  const StudyCase c;
  const std::string bad = c.file("grid: {model.n_layer: [1]}\njobs: 0\nseeds: 3");
  const std::string said = message_of([&] { inspect_study(bad); });
  CHECK_MESSAGE(contains(said, "jobs is 0"), said);
  CHECK(said.ends_with("(and 1 more)"));
  c.folder.put("out/ledger.sqlite", std::string(5000, 'x'));
  CHECK_THROWS_AS(inspect_study(c.folder / "out"), IoError);
  CHECK_THROWS_AS(inspect_study(c.folder / "out/ledger.sqlite"), IoError);
  CHECK_THROWS_WITH_AS(inspect_study(c.folder.put("x.db", "SQLite format 3")),
                       doctest::Contains("is an SQLite database"), IoError);
  CHECK_FALSE(inspect_study(c.folder / "base.yaml"));
  CHECK_FALSE(inspect_study(c.folder.put("broken.yaml", "grid: [")));
  CHECK_FALSE(inspect_study(c.folder.put("a.txt", "grid: {}")));
  CHECK_FALSE(inspect_study(c.folder.path()));
  CHECK_FALSE(inspect_study(c.folder / "none"));
}
