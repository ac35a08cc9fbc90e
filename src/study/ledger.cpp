#include "study/ledger.h"

#include <array>
#include <ctime>
#include <utility>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/text.h"

namespace fovea::study {

namespace {

using nlohmann::json;

constexpr std::int32_t kMark = 0x464F5653;  // "FOVS"
constexpr std::int64_t kVersion = 1;

constexpr std::array<std::string_view, 3> kTables = {
    "CREATE TABLE study(name TEXT NOT NULL, layout TEXT NOT NULL)",
    // position: of the last sweep's order; NULL: not in the study any more
    "CREATE TABLE runs(id TEXT PRIMARY KEY, position INTEGER, cell TEXT NOT NULL, labels TEXT NOT "
    "NULL, seed INTEGER NOT NULL, folder TEXT NOT NULL, state TEXT NOT NULL DEFAULT 'planned', "
    "code INTEGER NOT NULL DEFAULT 0, message TEXT NOT NULL DEFAULT '')",
    "CREATE TABLE attempts(run TEXT NOT NULL REFERENCES runs(id), number INTEGER NOT NULL, "
    "process INTEGER NOT NULL, began INTEGER NOT NULL, ended INTEGER, code INTEGER, message TEXT, "
    "PRIMARY KEY(run, number))"};

std::int64_t number(const Value& value) {
  const auto* const found = std::get_if<std::int64_t>(&value);
  return found == nullptr ? 0 : *found;
}

std::string text(const Value& value) {
  const auto* const found = std::get_if<std::string>(&value);
  return found == nullptr ? std::string() : *found;
}

RunState state_named(const std::string& name) {
  for (const RunState state :
       {RunState::running, RunState::stopped, RunState::finished, RunState::failed}) {
    if (name == name_of(state)) return state;
  }
  return RunState::planned;
}

std::string json_of(const Layout& layout) {
  json baseline = json::array();
  for (const std::optional<std::string>& label : layout.baseline)
    baseline.push_back(label ? json(*label) : json());
  return json{{"axes", layout.axes},
              {"baseline", baseline},
              {"metrics", layout.metrics},
              {"select", layout.select == Select::best ? "best" : "last"}}
      .dump();
}

Layout layout_of(const std::string& name, const json& root) {
  Layout out;
  out.study = name;
  out.axes = root.at("axes").get<std::vector<std::string>>();
  for (const json& label : root.at("baseline")) {
    out.baseline.push_back(label.is_null() ? std::nullopt
                                           : std::optional(label.get<std::string>()));
  }
  out.metrics = root.at("metrics").get<std::vector<std::string>>();
  out.select = root.at("select") == "best" ? Select::best : Select::last;
  return out;
}

std::int64_t now() {
  return static_cast<std::int64_t>(std::time(nullptr));
}

}  // namespace

std::string_view name_of(RunState state) {
  switch (state) {
    case RunState::planned:
      return "planned";
    case RunState::running:
      return "running";
    case RunState::stopped:
      return "stopped";
    case RunState::finished:
      return "finished";
    case RunState::failed:
      return "failed";
  }
  return "?";
}

std::string ledger_file(const std::string& study_folder) {
  return cat(study_folder, "/ledger.sqlite");
}

std::string run_folder(const std::string& study_folder, const std::string& folder) {
  return cat(study_folder, "/runs/", folder);
}

void require_same_name(const StudyFile& study, std::string_view ledger_name) {
  if (ledger_name == study.layout.study) return;
  throw ConfigError(cat(ledger_file(study.out_dir), ": is the ledger of the study '", ledger_name,
                        "', not of '", study.layout.study, "' (", study.path,
                        "): give the study an out_dir of its own"));
}

Ledger::Ledger(const std::string& study_folder, const StudyFile& study,
               std::span<const PlannedRun> runs)
    : database_(ledger_file(study_folder), Database::Mode::create, kMark, "ledger") {
  Transaction all(database_);
  make_tables();
  require_version();
  const std::string other = text(study_row().at(0));
  if (!other.empty()) require_same_name(study, other);
  enter(study, runs);
  all.commit();
}

Ledger::Ledger(const std::string& study_folder)
    : database_(ledger_file(study_folder), Database::Mode::read, kMark, "ledger") {
  require_version();
}

void Ledger::make_tables() {
  if (number(database_.query("SELECT count(*) FROM sqlite_master")[0][0]) > 0) return;
  for (const std::string_view table : kTables)
    database_.query(table);
  database_.query("INSERT INTO study VALUES('', '')");
  database_.query(cat("PRAGMA user_version = ", kVersion));
}

void Ledger::require_version() const {
  const std::int64_t version = number(database_.query("PRAGMA user_version")[0][0]);
  if (version == kVersion) return;
  throw IoError(cat(database_.path(), ": the ledger has layout ", version,
                    ", but this fovea knows ", kVersion, " only: use the fovea that wrote it"));
}

void Ledger::enter(const StudyFile& study, std::span<const PlannedRun> runs) {
  database_.query("UPDATE study SET name = ?, layout = ?",
                  {study.layout.study, json_of(study.layout)});
  database_.query("UPDATE runs SET position = NULL");
  std::int64_t position = 0;
  for (const PlannedRun& run : runs) {
    const Cell& cell = study.cells[run.cell];
    database_.query(
        "INSERT INTO runs(id, position, cell, labels, seed, folder) VALUES(?, ?, ?, ?, ?, ?) "
        "ON CONFLICT(id) DO UPDATE SET position = excluded.position, cell = excluded.cell, "
        "labels = excluded.labels, seed = excluded.seed",
        {run.id, position++, cell.name, json(cell.labels).dump(), run.seed, run.folder});
  }
}

std::vector<LedgerRun> Ledger::runs() const {
  std::vector<LedgerRun> out;
  for (const Row& row : database_.query(
           "SELECT id, position IS NOT NULL, cell, labels, seed, folder, state, code, message, "
           "(SELECT count(*) FROM attempts WHERE run = id), "
           "(SELECT process FROM attempts WHERE run = id ORDER BY number DESC LIMIT 1) "
           "FROM runs ORDER BY position IS NULL, position, cell, seed, id")) {
    LedgerRun run;
    run.id = text(row[0]);
    run.in_study = number(row[1]) != 0;
    run.cell = text(row[2]);
    const json labels = json::parse(text(row[3]), nullptr, false);
    if (!labels.is_array())
      throw IoError(cat(database_.path(), ": run ", run.id, " has no labels: ", text(row[3])));
    for (const json& label : labels)
      run.labels.push_back(label.is_string() ? label.get<std::string>() : label.dump());
    run.seed = number(row[4]);
    run.folder = text(row[5]);
    run.state = state_named(text(row[6]));
    run.code = static_cast<int>(number(row[7]));
    run.message = text(row[8]);
    run.attempts = static_cast<int>(number(row[9]));
    run.process = number(row[10]);
    out.push_back(std::move(run));
  }
  return out;
}

Row Ledger::study_row() const {
  std::vector<Row> rows = database_.query("SELECT name, layout FROM study");
  if (rows.size() == 1) return std::move(rows.front());
  throw IoError(cat(database_.path(), ": the ledger is damaged: it names ", rows.size(),
                    " studies; move it away and start the sweep again: finished runs are known by "
                    "their folders"));
}

Layout Ledger::layout() const {
  const Row row = study_row();
  try {
    return layout_of(text(row[0]), json::parse(text(row[1])));
  } catch (const json::exception& e) {
    throw IoError(cat(database_.path(), ": the ledger's layout cannot be understood: ", e.what()));
  }
}

void Ledger::began(const std::string& id, std::int64_t process) {
  Transaction both(database_);
  database_.query(
      "INSERT INTO attempts(run, number, process, began) VALUES(?1, (SELECT count(*) + 1 FROM "
      "attempts WHERE run = ?1), ?2, ?3)",
      {id, process, now()});
  database_.query("UPDATE runs SET state = ?, code = 0, message = '' WHERE id = ?",
                  {std::string(name_of(RunState::running)), id});
  both.commit();
}

void Ledger::ended(const std::string& id, RunState state, int code, const std::string& message) {
  Transaction both(database_);
  database_.query(
      "UPDATE attempts SET ended = ?2, code = ?3, message = ?4 WHERE run = ?1 AND number = "
      "(SELECT max(number) FROM attempts WHERE run = ?1) AND ended IS NULL",
      {id, now(), std::int64_t{code}, message});
  database_.query("UPDATE runs SET state = ?, code = ?, message = ? WHERE id = ?",
                  {std::string(name_of(state)), std::int64_t{code}, message, id});
  both.commit();
}

}  // namespace fovea::study
