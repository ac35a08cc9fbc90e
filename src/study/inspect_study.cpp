#include "study/inspect_study.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <set>
#include <utility>

#include "config/yaml.h"
#include "core/error.h"
#include "core/text.h"
#include "study/ledger.h"
#include "study/report_source.h"
#include "train/json_text.h"

namespace fovea::study {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostShown = 12;

std::string texts_json(const std::vector<std::string>& texts) {
  std::vector<std::string> out;
  out.reserve(texts.size());
  for (const std::string& text : texts)
    out.push_back(train::json_string(text));
  return cat("[", join(out, ","), "]");
}

std::string some(std::vector<std::string> texts) {
  const std::size_t more = texts.size() - std::min(texts.size(), kMostShown);
  texts.resize(texts.size() - more);
  return cat(join(texts, ", "), more > 0 ? cat(" and ", more, " more") : "");
}

std::string counted(std::size_t n, std::string_view one) {
  return cat(n, " ", one, n == 1 ? "" : "s");
}

// "standard", or "standard/*" where the label of the compared cell stands.
std::string baseline_text(const Layout& layout) {
  std::vector<std::string> labels;
  for (const std::optional<std::string>& label : layout.baseline)
    labels.push_back(label.value_or("*"));
  return join(labels, "/");
}

std::string layout_text(const Layout& layout) {
  const std::string baseline = baseline_text(layout);
  return cat("\n  axes ", join(layout.axes, ", "), "; ",
             baseline.empty() ? std::string("no baseline") : cat("baseline ", baseline),
             "; metrics ", layout.metrics.empty() ? "all" : join(layout.metrics, ", "), " of the ",
             layout.select == Select::best ? "best" : "last", " evaluation");
}

void add_layout(train::JsonObject& to, const Layout& layout) {
  to.add("name", layout.study).raw("axes", texts_json(layout.axes));
  to.add("baseline", baseline_text(layout)).raw("metrics", texts_json(layout.metrics));
  to.add("select", layout.select == Select::best ? "best" : "last");
}

std::string seeds_text(const std::vector<std::int64_t>& seeds, bool whole) {
  std::vector<std::string> texts;
  texts.reserve(seeds.size());
  for (const std::int64_t seed : seeds)
    texts.push_back(cat(seed));
  return whole ? join(texts, ",") : some(std::move(texts));
}

train::Inspection inspect_file(const std::string& path) {
  const StudyFile study = read_study(path);
  std::vector<std::string> names;
  for (const Cell& cell : study.cells)
    names.push_back(cell.name);
  train::JsonObject json;
  json.add("kind", "study").add("path", path);
  add_layout(json, study.layout);
  json.add("base", study.base).add("out_dir", study.out_dir).raw("cells", texts_json(names));
  json.raw("seeds", cat("[", seeds_text(study.seeds, true), "]"));
  json.add("runs", names.size() * study.seeds.size());
  return {"study",
          cat(path, ": study '", study.layout.study, "' of ", study.base, ", ",
              counted(names.size(), "cell"), " x ", counted(study.seeds.size(), "seed"),
              "\n  cells ", some(names), "\n  seeds ", seeds_text(study.seeds, false),
              layout_text(study.layout), "\n  folder ", study.out_dir,
              fs::exists(ledger_file(study.out_dir)) ? "" : ", not there: fovea sweep makes it",
              "\n  its configurations were not looked at: fovea sweep --dry-run checks them"),
          json.str(),
          {}};
}

train::Inspection inspect_runs(const std::string& path, const std::string& folder,
                               const std::string& kind) {
  const ReportInput input = report_of_study(folder);
  static constexpr std::array<const char*, 5> kStates = {"finished", "failed", "running", "stopped",
                                                         "not started"};
  std::vector<std::string> names, states;
  std::set<std::int64_t> seeds;
  for (const ReportCell& cell : input.cells)
    names.push_back(cell.name);
  for (const ReportRun& run : input.runs)
    seeds.insert(run.seed);
  train::JsonObject counts, json;
  for (const char* state : kStates) {
    const auto count = std::count_if(input.runs.begin(), input.runs.end(),
                                     [&](const ReportRun& r) { return r.record.state == state; });
    counts.add(state, count);
    if (count > 0) states.push_back(cat(count, " ", state));
  }
  json.add("kind", kind).add("path", path);
  add_layout(json, input.layout);
  json.raw("cells", texts_json(names));
  json.raw("seeds", cat("[", seeds_text({seeds.begin(), seeds.end()}, true), "]"));
  json.add("runs", input.runs.size()).raw("states", counts.str());
  json.add("others", input.others.size());
  return {
      kind,
      cat(path, ": ", kind == "ledger" ? "ledger" : "folder", " of the study '", input.layout.study,
          "', ", counted(input.runs.size(), "run"), states.empty() ? "" : ": ", join(states, ", "),
          "\n  cells ", some(names), "\n  seeds ", seeds_text({seeds.begin(), seeds.end()}, false),
          layout_text(input.layout),
          input.others.empty()
              ? ""
              : cat("\n  and ", counted(input.others.size(), "run"), " not in the study any more"),
          "\n  fovea report ", folder, " shows what they reached"),
      json.str(),
      {}};
}

bool is_study_file(const std::string& path) {
  const std::string extension = fs::path(path).extension().string();
  if (extension != ".yaml" && extension != ".yml") return false;
  try {
    const config::Node node = config::load(path);
    return node.find("grid") != nullptr || node.find("points") != nullptr ||
           node.find("base") != nullptr;
  } catch (const ConfigError&) {
    return false;  // said by whoever reads it as a configuration
  }
}

bool is_database(const std::string& path) {
  constexpr std::string_view kMagic = "SQLite format 3";
  std::string head(kMagic.size(), '\0');
  std::ifstream(path, std::ios::binary).read(head.data(), std::ssize(head));
  return head == kMagic;
}

std::optional<train::Inspection> inspected(const std::string& path) {
  if (fs::is_directory(path)) {
    if (!fs::exists(ledger_file(path))) return std::nullopt;
    return inspect_runs(path, path, "study folder");
  }
  if (!fs::is_regular_file(path)) return std::nullopt;
  const fs::path file(path);
  const std::string folder = file.has_parent_path() ? file.parent_path().string() : ".";
  if (file.filename() == fs::path(ledger_file("")).filename())
    return inspect_runs(path, folder, "ledger");
  if (is_database(path))
    throw IoError(cat(path, ": is an SQLite database, of which fovea reads a study's ",
                      fs::path(ledger_file("")).filename().string(), " only, by that name"));
  if (is_study_file(path)) return inspect_file(path);
  return std::nullopt;
}

}  // namespace

std::optional<train::Inspection> inspect_study(const std::string& path) {
  try {
    return inspected(path);
  } catch (const ConfigError& e) {
    throw ConfigError(train::one_line(e.what()));
  } catch (const IoError& e) {
    throw IoError(train::one_line(e.what()));
  } catch (const fs::filesystem_error& e) {
    throw IoError(cat(path, ": cannot be read: ", e.code().message()));
  }
}

}  // namespace fovea::study
