// The ledger of a study: what it keeps, and files that are none.

#include "study/ledger.h"

#include <doctest/doctest.h>

#include "core/error.h"
#include "core/file.h"
#include "study_case.h"

using namespace fovea;
using namespace fovea::test;
using study::Ledger;
using study::RunState;

namespace {

const std::string kTwo = "grid: {model.n_layer: [1, 2]}\nseeds: [1, 2]\nbaseline: 1\n";

// The ledger of a study, in its folder.
struct LedgerCase : StudyCase {
  Ledger open(const std::string& text) const {
    const study::StudyFile study = read(text);
    std::filesystem::create_directories(study.out_dir);
    return Ledger(study.out_dir, study, study::plan_runs(study, {}));
  }
  std::string out() const { return folder / "out"; }
  std::string file() const { return study::ledger_file(out()); }
};

ExitCode code_of(const LedgerCase& c, const std::string& text) {
  try {
    c.open(text);
  } catch (const Error& e) {
    return e.code();
  }
  return ExitCode::ok;
}

}  // namespace

TEST_CASE("a ledger lists the runs in their order, with what became of them") {
  const LedgerCase c;
  {
    Ledger ledger = c.open(kTwo);
    const auto runs = ledger.runs();
    REQUIRE(runs.size() == 4);
    CHECK(runs[1].cell == "2");
    CHECK(runs[1].seed == 1);
    CHECK(runs[1].state == RunState::planned);
    ledger.began(runs[0].id, 123);
    ledger.ended(runs[0].id, RunState::failed, 4, "loss is not finite\nat step 3");
    ledger.began(runs[1].id, 124);
  }
  const Ledger ledger(c.out());
  const auto runs = ledger.runs();
  REQUIRE(runs.size() == 4);
  CHECK(runs[0].state == RunState::failed);
  CHECK(runs[0].code == 4);
  CHECK(runs[0].message == "loss is not finite\nat step 3");
  CHECK(runs[0].attempts == 1);
  CHECK(runs[1].state == RunState::running);
  CHECK(runs[1].process == 124);
  CHECK(ledger.layout().study == "study");
  CHECK(ledger.layout().axes == std::vector<std::string>{"model.n_layer"});
  CHECK(ledger.layout().baseline.at(0) == "1");
}

TEST_CASE("entered again, runs keep their folders and states; those left out stay as others") {
  const LedgerCase c;
  std::string id, folder;
  {
    Ledger ledger = c.open(kTwo);
    id = ledger.runs()[1].id;
    folder = ledger.runs()[1].folder;
    ledger.ended(id, RunState::finished, 0, "");
  }
  const auto runs = c.open("points: [{name: deep, model.n_layer: 2}]\nseeds: [1]").runs();
  REQUIRE(runs.size() == 4);
  CHECK(runs[0].id == id);
  CHECK(runs[0].cell == "deep");
  CHECK(runs[0].folder == folder);
  CHECK(runs[0].state == RunState::finished);
  CHECK(runs[0].in_study);
  for (std::size_t i = 1; i < runs.size(); ++i)
    CHECK_FALSE(runs[i].in_study);
}

TEST_CASE("the ledger of another study is refused, naming both") {
  const LedgerCase c;
  c.open("name: first\n" + kTwo);
  CHECK(code_of(c, "name: second\n" + kTwo) == ExitCode::usage);
  const std::string said = message_of([&] { c.open("name: second\n" + kTwo); });
  CHECK_MESSAGE(contains(said, "is the ledger of the study 'first', not of 'second'"), said);
  CHECK(contains(said, "out_dir of its own"));
}

TEST_CASE("a file that is no ledger is refused with what to do") {
  const LedgerCase c;
  c.folder.put("out/ledger.sqlite", std::string(5000, 'x'));
  CHECK(code_of(c, kTwo) == ExitCode::data);
  CHECK(contains(message_of([&] { c.open(kTwo); }),
                 "the ledger is damaged: file is not a database; move it away"));
  CHECK(contains(message_of([&] { Ledger(c.out()); }), "the ledger is damaged"));
}

TEST_CASE("a ledger with overwritten pages is recognised as damaged") {
  const LedgerCase c;
  c.open(kTwo);
  std::string bytes = read_file(c.file());
  REQUIRE(bytes.size() > 8192);
  for (std::size_t i = 4096; i < bytes.size(); ++i)
    bytes[i] = '\x5A';
  c.folder.put("out/ledger.sqlite", bytes);
  CHECK(code_of(c, kTwo) == ExitCode::data);
  CHECK(contains(message_of([&] { c.open(kTwo); }), "is damaged"));
}

TEST_CASE("the database of another program and a newer ledger are refused") {
  const LedgerCase c;
  std::filesystem::create_directories(c.out());
  {
    const study::Database other(c.file(), study::Database::Mode::create, 7, "album");
    other.query("CREATE TABLE songs(name TEXT)");
  }
  CHECK(contains(message_of([&] { c.open(kTwo); }), "SQLite database, but no ledger of fovea"));
  std::filesystem::remove(c.file());
  c.open(kTwo);
  study::Database(c.file(), study::Database::Mode::create, 0x464F5653, "ledger")
      .query("PRAGMA user_version = 2");
  CHECK(contains(message_of([&] { c.open(kTwo); }), "has layout 2, but this fovea knows 1"));
}

TEST_CASE("a missing ledger and one that cannot be a file are told") {
  const LedgerCase c;
  CHECK(contains(message_of([&] { Ledger(c.out()); }),
                 "there is no ledger here: run fovea sweep first"));
  std::filesystem::create_directories(c.file());
  CHECK(code_of(c, kTwo) == ExitCode::data);
  for (const std::string& said :
       {message_of([&] { c.open(kTwo); }), message_of([&] { Ledger(c.out()); })})
    CHECK_MESSAGE(contains(said, "is a folder, but must be the ledger's file: move it away"), said);
}

TEST_CASE("a ledger without one of its tables, or its study, says what to do") {
  for (const char* change : {"DROP TABLE attempts", "DROP TABLE study", "DELETE FROM study",
                             "ALTER TABLE runs RENAME COLUMN labels TO names"}) {
    const LedgerCase c;
    c.open(kTwo);
    study::Database(c.file(), study::Database::Mode::create, 0x464F5653, "ledger").query(change);
    const std::string said = message_of([&] {
      const Ledger ledger(c.out());
      ledger.layout();
      ledger.runs();
    });
    CHECK_MESSAGE(contains(said, "the ledger is damaged"), said);
    CHECK_MESSAGE(contains(said, "move it away and start the sweep again"), said);
  }
}

TEST_CASE("what was not committed is not there") {
  const LedgerCase c;
  const Ledger ledger = c.open(kTwo);
  const study::Database database(c.file(), study::Database::Mode::create, 0x464F5653, "ledger");
  {
    const study::Transaction undone(database);
    database.query("UPDATE runs SET state = 'failed'");
  }
  CHECK(ledger.runs()[0].state == RunState::planned);
}
