#pragma once
// What became of a study's runs: one SQLite file beside them. A line about a run follows what it
// tells, so that a sweep may be killed at any moment; a lost ledger costs no run, since those that
// finished are known by their folders.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "study/database.h"
#include "study/study_plan.h"

namespace fovea::study {

enum class RunState { planned, running, stopped, finished, failed };
std::string_view name_of(RunState state);

struct LedgerRun {
  std::string id;
  bool in_study = true;  // the last sweep had it among its runs
  std::string cell;
  std::vector<std::string> labels;
  std::int64_t seed = 0;
  std::string folder;  // its name in the study's runs/
  RunState state = RunState::planned;
  int code = 0;         // that the last attempt ended with, 128 + signal if one killed it
  std::string message;  // why it failed
  int attempts = 0;
  std::int64_t process = 0;  // of the last attempt
};

class Ledger {
 public:
  // Opens the ledger of the study's folder or makes it, and enters the runs; those that it knows
  // keep their folders and what became of them. Throws IoError; ConfigError if it is another
  // study's.
  Ledger(const std::string& study_folder, const StudyFile& study, std::span<const PlannedRun> runs);
  // As it is. Throws IoError, also if there is none.
  explicit Ledger(const std::string& study_folder);

  // Those of the last sweep in its order, then those that are not in the study any more.
  std::vector<LedgerRun> runs() const;
  Layout layout() const;

  // An attempt of the run: how it began and how it ended.
  void began(const std::string& id, std::int64_t process);
  void ended(const std::string& id, RunState state, int code, const std::string& message);

 private:
  void make_tables();
  void enter(const StudyFile& study, std::span<const PlannedRun> runs);
  void require_version() const;
  Row study_row() const;  // its name and layout

  Database database_;
};

// Throws ConfigError unless `study` has the name that the ledger of its folder bears.
void require_same_name(const StudyFile& study, std::string_view ledger_name);

// The ledger's file, and the folder of a run.
std::string ledger_file(const std::string& study_folder);
std::string run_folder(const std::string& study_folder, const std::string& folder);

}  // namespace fovea::study
