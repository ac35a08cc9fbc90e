#pragma once
// A study: one configuration, what is varied in it, and seeds. What its file says, before any
// configuration is looked at.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "config/node.h"
#include "config/option.h"

namespace fovea::study {

// Which evaluation of a run counts: its last one, or the one that the task calls best.
enum class Select { last, best };

// What a report has to know of a study; the ledger keeps it.
struct Layout {
  std::string study;              // its name
  std::vector<std::string> axes;  // config paths, or "point" for a list of points
  // The cells to compare with: a label an axis, or nothing where the label of the compared cell
  // stands. Empty: no comparison.
  std::vector<std::optional<std::string>> baseline;
  std::vector<std::string> metrics;  // empty: all that the runs report
  Select select = Select::last;
};

// A config path and the value that it gets.
struct Setting {
  std::string path;
  config::Node value;
};

// Runs that differ in their seed only.
struct Cell {
  std::string name;                 // labels with "/" between
  std::vector<std::string> labels;  // one an axis
  std::vector<Setting> settings;
  config::Place place;  // for messages
};

struct StudyFile {
  std::string path, base;    // the file, and the configuration below it
  config::Place base_place;  // for messages
  std::string out_dir;       // the ledger's folder
  int jobs = 1;              // runs at a time
  std::vector<Setting> set;  // for every run
  std::vector<Cell> cells;
  std::vector<std::int64_t> seeds;
  Layout layout;
  std::vector<config::Place> metric_places;  // of layout.metrics
};

// What a file says as far as it can be understood, and a line "file:line:column: what" for each
// finding; "": none.
struct StudyDraft {
  StudyFile study;
  std::string wrong;
};
// Throws ConfigError for a file that cannot be read, or is no YAML.
StudyDraft draft_study(const std::string& path);
// Throws ConfigError with all findings.
StudyFile read_study(const std::string& path);

// The keys of a study file; docs/studies.md explains them.
std::span<const config::Option> study_options();
// The most runs a study may have.
inline constexpr std::size_t kMostRuns = 10'000;

// The labels that stand for `text`: a cell's name, or the label of the only axis. Throws
// ConfigError with the nearest name; `where` begins the message.
std::vector<std::optional<std::string>> baseline_named(const std::string& text,
                                                       std::span<const Cell> cells,
                                                       const std::string& where);

}  // namespace fovea::study
