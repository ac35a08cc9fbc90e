#include "study/study_file.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "config/yaml.h"
#include "core/error.h"
#include "core/text.h"
#include "study/study_cells.h"

namespace fovea::study {

namespace {

using config::Findings;
using config::Node;
using enum config::Type;

// What the key `seed` of a configuration takes.
constexpr std::int64_t kLargestSeed = (std::int64_t{1} << 53) - 1;

constexpr std::array kOptions = std::to_array<config::Option>({
    {"name", string, "", "", "The study's name; by default the file's."},
    {"base", string, "", "", "The configuration that is varied; a path from the study's folder."},
    {"set", any, "", "path: value", "Settings of every run, in place of the configuration's."},
    {"grid", any, "", "path: [value, ...]", "What is varied: all combinations are run."},
    {"points", any, "", "list of path: value", "Or a list of what is run; name: names a point."},
    {"seeds", any, "[1, 2, 3]", "list of integers", "Every cell is run with each."},
    {"baseline", any, "", "cell, or axis: value", "What the report compares the cells with."},
    {"metrics", strings, "[]", "", "What the report shows; by default all that runs report."},
    {"select", choice, "last", "last | best", "The evaluation of a run that counts."},
    {"jobs", integer, "1", "[1, 1024]", "Runs at a time."},
    {"out_dir", string, "", "", "Folder of ledger and runs; by default studies/NAME."},
});

std::vector<std::int64_t> seeds_of(const Node& node, Findings& findings) {
  std::vector<std::int64_t> out;
  if (node.kind() != Node::Kind::list || node.items().empty()) {
    findings.add(node.place(), "seeds",
                 cat("seeds is ", node.kind() == Node::Kind::list ? "empty" : node.describe(),
                     ", but must be a list of whole numbers such as [1, 2, 3]"));
    return out;
  }
  for (const Node& item : node.items()) {
    try {
      const std::int64_t seed = item.as_int("a seed");
      if (std::find(out.begin(), out.end(), seed) != out.end()) {
        findings.add(item.place(), "seeds", cat("seeds has ", seed, " twice"));
      } else if (seed < 0 || seed > kLargestSeed) {
        findings.add(item.place(), "seeds",
                     cat("seeds has ", seed, ", but a seed is in [0, ", kLargestSeed, "]"));
      } else {
        out.push_back(seed);
      }
    } catch (const ConfigError&) {
      findings.add(item.place(), "seeds",
                   cat("seeds has ", item.describe(), ", but must hold whole numbers"));
    }
  }
  return out;
}

// "model.attention.kind: standard": a label for some of the axes.
std::vector<std::optional<std::string>> baseline_of(const Node& node,
                                                    const std::vector<std::string>& axes,
                                                    const std::vector<Cell>& cells,
                                                    Findings& findings) {
  std::vector<std::optional<std::string>> out(axes.size());
  for (const auto& [axis, value] : node.entries()) {
    const auto at = std::find(axes.begin(), axes.end(), axis);
    if (at == axes.end()) {
      findings.add(value.key_place(), "baseline",
                   cat("baseline names '", axis, "', but the axes are ", join(axes, ", ")));
      continue;
    }
    const auto index = static_cast<std::size_t>(at - axes.begin());
    const std::string label = label_of(value);
    std::vector<std::string> labels;
    for (const Cell& cell : cells) {
      if (std::find(labels.begin(), labels.end(), cell.labels[index]) == labels.end())
        labels.push_back(cell.labels[index]);
    }
    if (std::find(labels.begin(), labels.end(), label) == labels.end()) {
      findings.add(value.place(), "baseline",
                   cat("baseline: ", axis, " is ", label, ", but there are ", join(labels, ", ")));
    }
    out[index] = label;
  }
  return out;
}

void read_baseline(StudyFile& study, const Node& node, Findings& findings) {
  if (node.kind() == Node::Kind::map) {
    study.layout.baseline = baseline_of(node, study.layout.axes, study.cells, findings);
    return;
  }
  if (node.kind() != Node::Kind::scalar) {
    findings.add(node.place(), "baseline",
                 cat("baseline is ", node.describe(), ", but must name a cell"));
    return;
  }
  try {
    study.layout.baseline = baseline_named(node.text(), study.cells, "baseline");
  } catch (const ConfigError& e) {
    findings.add(node.place(), "baseline", e.what());
  }
}

// The name is that of a folder below studies/.
void read_name(StudyFile& study, const Node& at, Findings& findings) {
  const std::string& name = study.layout.study;
  const bool dots = name.find_first_not_of('.') == std::string::npos;
  if (dots || name.find_first_of("/\\") != std::string::npos) {
    findings.add(at.place(), "name",
                 cat("name is '", name,
                     "', but must be that of a folder, without / and \\ and not "
                     "of dots only; out_dir may be any folder"));
  }
}

void read_metrics(StudyFile& study, const Node& values) {
  study.layout.metrics = values.get_strings("metrics");
  const Node& node = *values.find("metrics");
  for (std::size_t i = 0; i < study.layout.metrics.size(); ++i)
    study.metric_places.push_back(node.kind() == Node::Kind::list ? node.items()[i].place()
                                                                  : node.place());
}

void read_cells(StudyFile& study, const Node& values, const Node& whole, Findings& findings) {
  const Node* const grid = values.find("grid");
  const Node* const points = values.find("points");
  if ((grid == nullptr) == (points == nullptr)) {
    const Node& at = grid != nullptr ? *points : whole;
    findings.add(at.place(), grid != nullptr ? "points" : "grid",
                 grid != nullptr ? "there are both grid and points: give one of them"
                                 : "there is nothing to run: give grid or points");
    return;
  }
  study.cells = grid != nullptr ? cells_of_grid(*grid, study.layout.axes, findings)
                                : cells_of_points(*points, study.layout.axes, findings);
  if (study.cells.size() * study.seeds.size() > kMostRuns) {
    findings.add((grid != nullptr ? grid : points)->place(), "grid",
                 cat("the study has ", study.cells.size(), " cells and ", study.seeds.size(),
                     " seeds, but at most ", kMostRuns, " runs are made"));
  }
}

}  // namespace

std::span<const config::Option> study_options() {
  return kOptions;
}

std::vector<std::optional<std::string>> baseline_named(const std::string& text,
                                                       std::span<const Cell> cells,
                                                       const std::string& where) {
  std::vector<std::string> names;
  for (const Cell& cell : cells) {
    if (cell.name == text) return {cell.labels.begin(), cell.labels.end()};
    names.push_back(cell.name);
  }
  const std::string near = nearest(text, names);
  if (names.size() > 12) names.resize(12);
  throw ConfigError(
      cat(where, " is '", text, "', but no cell has that name; ",
          near.empty() ? cat("there are ", join(names, ", ")) : cat("did you mean ", near, "?")));
}

StudyDraft draft_study(const std::string& path) {
  const Node whole = config::load(path);
  Findings findings;
  const Node values = config::complete(whole, kOptions, "", findings);
  const auto text = [&](std::string_view key, const std::string& otherwise) {
    const Node* const node = values.find(key);
    return node == nullptr || node->text().empty() ? otherwise : node->text();
  };
  StudyDraft draft;
  StudyFile& study = draft.study;
  study.path = path;
  const std::filesystem::path file(path);
  study.layout.study = text("name", file.stem().string());
  const Node* const name = values.find("name");
  read_name(study, name != nullptr ? *name : whole, findings);
  study.out_dir = text("out_dir", cat("studies/", study.layout.study));
  study.jobs = static_cast<int>(values.get_int("jobs"));
  read_metrics(study, values);
  study.layout.select = values.get_string("select") == "best" ? Select::best : Select::last;
  if (const std::string base = text("base", ""); !base.empty()) {
    study.base = (file.parent_path() / base).lexically_normal().string();
    study.base_place = values.find("base")->place();
  } else if (!findings.has("base")) {
    findings.add(whole.place(), "base", "base is missing: the configuration that is varied");
  }
  study.seeds = seeds_of(*values.find("seeds"), findings);
  if (const Node* const set = values.find("set"); set != nullptr)
    study.set = settings_of(*set, "set", findings);
  read_cells(study, values, whole, findings);
  const Node* const baseline = values.find("baseline");
  if (baseline != nullptr && !study.cells.empty()) read_baseline(study, *baseline, findings);
  try {
    findings.raise();
  } catch (const ConfigError& e) {
    draft.wrong = e.what();
  }
  return draft;
}

StudyFile read_study(const std::string& path) {
  StudyDraft draft = draft_study(path);
  if (!draft.wrong.empty()) throw ConfigError(draft.wrong);
  return std::move(draft.study);
}

}  // namespace fovea::study
