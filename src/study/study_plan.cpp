#include "study/study_plan.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <sstream>

#include "config/yaml.h"
#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "data/hash.h"
#include "train/dry_run.h"

namespace fovea::study {

namespace {

constexpr std::size_t kNamedCells = 3;
constexpr std::size_t kLongestSlug = 60;

// What is wrong, a line each, and in which cells.
class CellFindings {
 public:
  explicit CellFindings(const StudyFile& study) : study_(study) {}

  void add(std::size_t cell, const std::string& lines) {
    std::istringstream text(lines);
    for (std::string line; std::getline(text, line);) {
      auto [at, is_new] = cells_.try_emplace(line);
      if (is_new) order_.push_back(line);
      at->second.insert(cell);
    }
  }
  bool any() const { return !order_.empty(); }
  std::string text() const {
    std::vector<std::string> lines;
    for (const std::string& line : order_)
      lines.push_back(line + where(cells_.at(line)));
    return join(lines, "\n");
  }

 private:
  std::string where(const std::set<std::size_t>& cells) const {
    if (study_.cells.size() == 1) return "";
    if (cells.size() == study_.cells.size()) return " (in every cell)";
    std::vector<std::string> names;
    for (const std::size_t cell : cells) {
      if (names.size() < kNamedCells) names.push_back(study_.cells[cell].name);
    }
    const std::size_t more = cells.size() - names.size();
    return cat(" (in ", join(names, "; "), more > 0 ? cat(" and ", more, " more") : "", ")");
  }

  const StudyFile& study_;
  std::vector<std::string> order_;
  std::map<std::string, std::set<std::size_t>> cells_;
};

// Letters that every file system and shell takes as they are.
std::string slug(const std::string& name) {
  std::string out;
  for (const char c : name.substr(0, kLongestSlug)) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '.' || c == '=' || c == '-';
    out.push_back(plain ? c : '_');
  }
  return out.starts_with('.') || out.starts_with('-') ? "_" + out : out;
}

std::string id_of(const train::RunConfig& config) {
  std::string hash = config.result_hash();
  if (config.train.max_seconds == 0) return hash;
  return data::hash_hex(data::xxh3_64(cat(hash, " ", config.train.max_seconds)));
}

config::Node node_of(const config::Node& base, const StudyFile& study, const Cell& cell,
                     std::int64_t seed, std::span<const std::string> assignments) {
  config::Node node = base;
  for (const Setting& setting : study.set)
    node.set(setting.path, setting.value);
  config::override_with(node, assignments);
  for (const Setting& setting : cell.settings)
    node.set(setting.path, setting.value);
  const config::Place place{.source = cat(study.path, ", seeds"), .line = 0, .column = 0};
  node.set("seed", config::Node::scalar(cat(seed), place));
  return node;
}

void require_own(const config::Node& node, std::string_view key, std::string_view why) {
  const config::Node* const given = node.find(key);
  if (given == nullptr || given->is_null()) return;
  throw ConfigError(cat(given->place().str(), ": ", key, " cannot be given: ", why));
}

void require_different(const StudyFile& study, std::span<const PlannedRun> runs) {
  std::map<std::string, std::size_t> seen;  // the cell of an id
  std::vector<std::string> lines;
  for (const PlannedRun& run : runs) {
    const auto [other, is_new] = seen.emplace(run.id, run.cell);
    if (is_new) continue;
    const Cell &one = study.cells[other->second], &two = study.cells[run.cell];
    std::string line = cat(two.place.str(), ": '", one.name, "' and '", two.name,
                           "' are the same runs: no result depends on what they differ in; leave "
                           "one of them out");
    if (std::find(lines.begin(), lines.end(), line) == lines.end())
      lines.push_back(std::move(line));
  }
  if (!lines.empty()) throw ConfigError(join(lines, "\n"));
}

config::Node load_base(const StudyFile& study) {
  try {
    return config::load(study.base);
  } catch (const ConfigError& e) {
    const std::string_view what = e.what();
    if (!what.starts_with(cat(study.base, ": cannot be read"))) throw;
    throw ConfigError(cat(study.base_place.str(), ": base: ", what));
  }
}

std::vector<PlannedRun> configured_runs(const StudyFile& study,
                                        std::span<const std::string> assignments) {
  const config::Node base = load_base(study);
  if (const config::Node* resume = base.find("train.resume");
      resume == nullptr || resume->text() != "auto")
    require_own(base, "train.resume", "a study goes on with its own runs");
  for (const std::string& assignment : assignments) {
    for (const std::string_view own : {"seed", "out_dir", "train.resume"}) {
      if (assignment.starts_with(cat(own, "=")))
        throw ConfigError(cat("command line: ", assignment, ": ", own,
                              " belongs to the study, and cannot be given for its runs"));
    }
  }
  std::vector<PlannedRun> runs;
  CellFindings findings(study);
  for (const std::int64_t seed : study.seeds) {
    for (std::size_t cell = 0; cell < study.cells.size(); ++cell) {
      try {
        PlannedRun run{cell, seed, {}, {}, {}};
        run.config =
            train::RunConfig::from(node_of(base, study, study.cells[cell], seed, assignments));
        run.id = id_of(run.config);
        run.folder = cat(slug(study.cells[cell].name), "-seed", seed, "-", run.id);
        runs.push_back(std::move(run));
      } catch (const ConfigError& e) {
        findings.add(cell, e.what());
      }
    }
  }
  if (findings.any()) throw ConfigError(findings.text());
  return runs;
}

// Metrics of the study that no run reports, as far as dry runs know.
void check_metrics(const StudyFile& study, std::span<const train::DryRun> cells) {
  std::vector<std::string> known, lines;
  bool more = false;
  for (const train::DryRun& cell : cells) {
    more = more || cell.reports_more;
    for (const std::string& name : cell.metrics) {
      if (std::find(known.begin(), known.end(), name) == known.end()) known.push_back(name);
    }
  }
  for (std::size_t i = 0; i < study.layout.metrics.size() && !known.empty(); ++i) {
    const std::string& wanted = study.layout.metrics[i];
    if (std::find(known.begin(), known.end(), wanted) != known.end()) continue;
    const std::string near = nearest(wanted, known);
    std::string line =
        cat(study.metric_places[i].str(), ": metrics has '", wanted, "', but no run reports it; ",
            near.empty() ? cat("there are ", join(known, ", ")) : cat("did you mean ", near, "?"));
    if (more)
      log::warn(cat(line, " (results may tell more than is known beforehand)"));
    else
      lines.push_back(std::move(line));
  }
  if (!lines.empty()) throw ConfigError(join(lines, "\n"));
}

}  // namespace

std::vector<PlannedRun> plan_runs(const StudyFile& study,
                                  std::span<const std::string> assignments) {
  std::vector<PlannedRun> runs = configured_runs(study, assignments);
  require_different(study, runs);
  return runs;
}

PlannedStudy plan_study(const std::string& path, std::span<const std::string> assignments) {
  StudyDraft draft = draft_study(path);
  std::vector<std::string> wrong;
  if (!draft.wrong.empty()) wrong.push_back(draft.wrong);
  std::vector<PlannedRun> runs;
  try {
    if (wrong.empty()) {
      runs = plan_runs(draft.study, assignments);
    } else if (!draft.study.base.empty()) {
      if (draft.study.seeds.empty()) draft.study.seeds = {0};  // for what is wrong with any seed
      configured_runs(draft.study, assignments);
    }
  } catch (const ConfigError& e) {
    wrong.emplace_back(e.what());
  }
  if (!wrong.empty()) throw ConfigError(join(wrong, "\n"));
  return {std::move(draft.study), std::move(runs)};
}

std::string extent_of(const StudyFile& study) {
  const std::size_t cells = study.cells.size(), seeds = study.seeds.size();
  return cat(cells, cells == 1 ? " cell x " : " cells x ", seeds, seeds == 1 ? " seed" : " seeds");
}

void check_runs(const StudyFile& study, std::span<const PlannedRun> runs) {
  CellFindings findings(study);
  std::optional<ExitCode> code;
  std::vector<train::DryRun> cells;
  for (const PlannedRun& run : runs.first(std::min(runs.size(), study.cells.size()))) {
    try {
      cells.push_back(train::dry_run(run.config));
    } catch (const Error& e) {
      findings.add(run.cell, e.what());
      if (!code) code = e.code();
    }
  }
  if (findings.any()) throw Error(*code, findings.text());
  check_metrics(study, cells);
}

}  // namespace fovea::study
