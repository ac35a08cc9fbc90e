#include "study/report_source.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "config/yaml.h"
#include "core/error.h"
#include "core/text.h"
#include "study/ledger.h"
#include "train/flat_settings.h"
#include "train/resume.h"
#include "train/run_config.h"

namespace fovea::study {

namespace {

namespace fs = std::filesystem;

// What the ledger knows and the folder does not show.
void add_ledger(ReportRun& run, const LedgerRun& line) {
  RunRecord& record = run.record;
  if (record.state == "finished" || record.state == "running") return;
  if (line.state == RunState::failed) {
    record.state = "failed";
    record.message = line.message;
    run.code = line.code;
  } else if (line.state == RunState::finished) {
    record.message = "it had finished, but its folder does not show that any more";
  }
}

// A run that no study made.
struct LooseRun {
  std::string folder, cell_id;
  train::RunConfig config;
};

LooseRun loose_run(const std::string& folder) {
  const std::string file = cat(folder, "/config.yaml");
  if (!fs::exists(folder)) throw IoError(cat(folder, ": does not exist"));
  if (!fs::exists(file) && fs::exists(cat(folder, "/configs")) && fs::exists(cat(folder, "/runs")))
    throw IoError(cat(ledger_file(folder),
                      ": there is no ledger here: run fovea sweep first, which "
                      "knows finished runs by their folders"));
  if (!fs::exists(file))
    throw IoError(cat(folder, ": is neither a study file, a study's folder nor a run folder"));
  config::Node node = config::load(file);
  LooseRun run{folder, {}, train::RunConfig::of_checkpoint(node)};
  node.set("seed", config::Node::scalar("0", {}));
  run.cell_id = train::RunConfig::of_checkpoint(node).result_hash();
  return run;
}

using Settings = std::map<std::string, std::string>;

// The keys in which some cell differs from the first, without those that change no result.
std::set<std::string> differing_keys(std::span<const LooseRun* const> firsts) {
  std::set<std::string> keys;
  for (const LooseRun* other : firsts) {
    for (const std::string& line : train::conflicting_keys(firsts[0]->config, other->config))
      keys.insert(line.substr(0, line.find(": ")));
  }
  keys.erase("seed");
  return keys;
}

std::string label_in(const Settings& settings, const std::string& key) {
  const auto found = settings.find(key);
  if (found == settings.end()) return "none";
  const std::string& text = found->second;
  const bool quoted = text.size() >= 2 && text.front() == '"' && text.back() == '"';
  return quoted ? text.substr(1, text.size() - 2) : text;
}

// The axes: keys that all cells have, if they tell the cells apart; else all that differ; else the
// folder of a cell's first run.
void name_cells(ReportInput& input, std::span<const LooseRun* const> firsts) {
  std::vector<Settings> settings;
  for (const LooseRun* run : firsts) {
    settings.push_back(train::flat_settings(run->config.resolved));
    settings.back()["run"] = run->folder;
  }
  const std::set<std::string> keys = differing_keys(firsts);
  std::vector<std::string> common;
  for (const std::string& key : keys) {
    if (std::all_of(settings.begin(), settings.end(),
                    [&](const Settings& s) { return s.count(key) == 1; }))
      common.push_back(key);
  }
  for (const std::vector<std::string>& axes :
       {common, std::vector<std::string>(keys.begin(), keys.end()),
        std::vector<std::string>{"run"}}) {
    std::set<std::vector<std::string>> distinct;
    input.layout.axes = axes;
    input.cells.clear();
    for (const Settings& s : settings) {
      std::vector<std::string> labels;
      labels.reserve(axes.size());
      for (const std::string& key : axes)
        labels.push_back(label_in(s, key));
      input.cells.push_back({join(labels, "/"), labels});
      distinct.insert(std::move(labels));
    }
    if (!axes.empty() && distinct.size() == settings.size()) return;
  }
}

}  // namespace

ReportInput report_of_study(const std::string& study_folder, std::optional<Select> select) {
  const Ledger ledger(study_folder);
  ReportInput input;
  input.layout = ledger.layout();
  input.root = study_folder;
  std::map<std::vector<std::string>, std::size_t> cells;
  input.layout.select = select.value_or(input.layout.select);
  for (const LedgerRun& line : ledger.runs()) {
    ReportRun run{0, line.cell, line.seed, cat("runs/", line.folder), {}, 0};
    run.record = read_run(run_folder(study_folder, line.folder), input.layout.select);
    add_ledger(run, line);
    if (!line.in_study) {
      input.others.push_back(std::move(run));
      continue;
    }
    const auto [cell, is_new] = cells.emplace(line.labels, input.cells.size());
    if (is_new) input.cells.push_back({line.cell, line.labels});
    run.cell = cell->second;
    input.runs.push_back(std::move(run));
  }
  return input;
}

ReportInput report_of_runs(std::span<const std::string> folders, Select select) {
  std::vector<LooseRun> runs;
  for (const std::string& folder : folders)
    runs.push_back(loose_run(folder));
  ReportInput input;
  input.layout.study = "runs";
  input.layout.select = select;
  std::vector<const LooseRun*> firsts;
  std::map<std::string, std::size_t> cells;
  for (const LooseRun& run : runs) {
    const auto [cell, is_new] = cells.emplace(run.cell_id, firsts.size());
    if (is_new) firsts.push_back(&run);
    const auto seed = static_cast<std::int64_t>(run.config.seed);
    for (const ReportRun& other : input.runs) {
      if (other.cell == cell->second && other.seed == seed)
        throw ConfigError(cat(other.folder, " and ", run.folder,
                              " are the same run: their settings and seeds are equal"));
    }
    input.runs.push_back({cell->second, {}, seed, run.folder, read_run(run.folder, select), 0});
  }
  name_cells(input, firsts);
  for (ReportRun& run : input.runs)
    run.cell_name = input.cells[run.cell].name;
  return input;
}

}  // namespace fovea::study
