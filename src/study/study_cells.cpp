#include "study/study_cells.h"

#include <algorithm>
#include <array>

#include "core/text.h"
#include "train/run_config.h"

namespace fovea::study {

namespace {

using config::Findings;
using config::Node;

// Why a study may not set the path, or "".
std::string why_not(std::string_view path) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kOwn = {
      {{"seed", "a study's seeds stand in its key seeds"},
       {"out_dir", "a study gives every run a folder of its own"},
       {"train.resume", "a study goes on with its own runs"}}};
  for (const auto& [own, why] : kOwn) {
    if (path == own) return std::string(why);
  }
  const auto options = train::config_options();
  const bool section = std::any_of(options.begin(), options.end(), [&](const config::Option& o) {
    return o.key.starts_with(cat(path, "."));
  });
  return section ? cat(path, " is a section: name its keys, as in train.max_steps") : "";
}

void add_setting(std::vector<Setting>& to, const std::string& path, Node value,
                 const config::Place& at, Findings& findings) {
  if (const std::string why = why_not(path); !why.empty()) {
    findings.add(at, path, cat(path, " cannot be set: ", why));
    return;
  }
  value.set_key_place(at);
  to.push_back({path, std::move(value)});
}

// A value of an axis, with its label.
struct Choice {
  std::string label;
  Node value;
};

std::vector<Choice> choices_of(const std::string& path, const Node& node, Findings& findings) {
  std::vector<Choice> out;
  const auto add = [&](std::string label, const Node& value) {
    const bool known = std::any_of(out.begin(), out.end(),
                                   [&](const Choice& choice) { return choice.label == label; });
    if (known)
      findings.add(value.place(), path, cat(path, " has ", label, " twice"));
    else
      out.push_back({std::move(label), value});
  };
  if (node.kind() == Node::Kind::map) {
    for (const auto& [label, value] : node.entries())
      add(label, value);
  } else if (node.kind() == Node::Kind::list) {
    for (const Node& value : node.items())
      add(label_of(value), value);
  } else {
    findings.add(node.place(), path,
                 cat(path, " is ", node.describe(), ", but must be a list of values"));
    return out;
  }
  if (out.empty()) findings.add(node.place(), path, cat("grid: ", path, " has no values"));
  return out;
}

std::string name_of(const std::vector<std::string>& labels) {
  return join(labels, "/");
}

// A point that has no name is called by what it sets.
std::string point_name(const std::vector<Setting>& settings) {
  std::vector<std::string> parts;
  for (const Setting& setting : settings) {
    const std::size_t dot = setting.path.rfind('.');
    parts.push_back(cat(setting.path.substr(dot == std::string::npos ? 0 : dot + 1), "=",
                        label_of(setting.value)));
  }
  return parts.empty() ? std::string("base") : join(parts, " ");
}

}  // namespace

std::string label_of(const Node& value) {
  if (value.is_null()) return "default";
  if (value.kind() == Node::Kind::scalar) return value.text();
  std::vector<std::string> parts;
  std::string head;
  for (const Node& item : value.items())
    parts.push_back(label_of(item));
  if (value.kind() == Node::Kind::list) return cat("[", join(parts, ", "), "]");
  for (const auto& [key, entry] : value.entries()) {
    if (key == "kind" && entry.kind() == Node::Kind::scalar) {
      head = entry.text();
    } else {
      parts.push_back(cat(key, "=", label_of(entry)));
    }
  }
  return parts.empty() && !head.empty() ? head : cat(head, "(", join(parts, ","), ")");
}

std::vector<Setting> settings_of(const Node& node, std::string_view key, Findings& findings) {
  std::vector<Setting> out;
  if (node.kind() != Node::Kind::map) {
    findings.add(node.place(), key,
                 cat(key, " is ", node.describe(), ", but must be a map of config paths"));
    return out;
  }
  for (const auto& [path, value] : node.entries())
    add_setting(out, path, value, value.key_place(), findings);
  return out;
}

std::vector<Cell> cells_of_grid(const Node& node, std::vector<std::string>& axes,
                                Findings& findings) {
  std::vector<Cell> cells;
  if (node.kind() != Node::Kind::map || node.entries().empty()) {
    findings.add(node.place(), "grid",
                 cat("grid is ", node.kind() == Node::Kind::map ? "empty" : node.describe(),
                     ", but must be a map of config paths and lists of values"));
    return cells;
  }
  cells.push_back({"", {}, {}, node.place()});
  for (const auto& [path, values] : node.entries()) {
    axes.push_back(path);
    const std::vector<Choice> choices = choices_of(path, values, findings);
    const std::string why = why_not(path);
    if (!why.empty()) {
      findings.add(values.key_place(), path, cat(path, " cannot be varied: ", why));
    }
    if (choices.empty() || cells.size() * choices.size() > kMostRuns) {
      if (!choices.empty())
        findings.add(node.place(), "grid", cat("grid has more than ", kMostRuns, " cells"));
      return {};
    }
    std::vector<Cell> next;
    for (const Cell& cell : cells) {
      for (const Choice& choice : choices) {
        next.push_back(cell);
        next.back().labels.push_back(choice.label);
        next.back().place = choice.value.place();
        if (!why.empty()) continue;
        next.back().settings.push_back({path, choice.value});
        next.back().settings.back().value.set_key_place(values.key_place());
      }
    }
    cells = std::move(next);
  }
  for (Cell& cell : cells)
    cell.name = name_of(cell.labels);
  return cells;
}

std::vector<Cell> cells_of_points(const Node& node, std::vector<std::string>& axes,
                                  Findings& findings) {
  axes = {"point"};
  std::vector<Cell> cells;
  if (node.kind() != Node::Kind::list || node.items().empty()) {
    findings.add(node.place(), "points",
                 cat("points is ", node.kind() == Node::Kind::list ? "empty" : node.describe(),
                     ", but must be a list of maps of config paths"));
    return cells;
  }
  for (const Node& point : node.items()) {
    Cell cell;
    cell.place = point.place();
    if (point.kind() != Node::Kind::map) {
      findings.add(point.place(), "points",
                   cat("a point is ", point.describe(), ", but must be a map of config paths"));
      continue;
    }
    for (const auto& [path, value] : point.entries()) {
      if (path != "name") {
        add_setting(cell.settings, path, value, value.key_place(), findings);
      } else if (value.kind() != Node::Kind::scalar || value.text().empty()) {
        findings.add(value.place(), "points",
                     cat("name is ", value.describe(), ", but must be text"));
      } else {
        cell.name = value.text();
      }
    }
    if (cell.name.empty()) cell.name = point_name(cell.settings);
    const bool known = std::any_of(cells.begin(), cells.end(),
                                   [&](const Cell& other) { return other.name == cell.name; });
    if (known)
      findings.add(point.place(), "points", cat("two points are called '", cell.name, "'"));
    cell.labels = {cell.name};
    cells.push_back(std::move(cell));
  }
  return cells;
}

}  // namespace fovea::study
