// fovea report: what the runs of a study say together.

#include "study/report.h"

#include <filesystem>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "command_line.h"
#include "core/file.h"
#include "core/log.h"
#include "core/text.h"
#include "study/ledger.h"
#include "study/report_source.h"
#include "verbs/verbs.h"

namespace fovea::apps {

namespace {

namespace fs = std::filesystem;

struct Asked {
  std::vector<std::string> paths;
  std::string baseline, metrics, select, format = "markdown", output;
  bool results_only = false;

  bool parse(const Arguments& arguments, Output& out) {
    CommandLine line("report",
                     "Tables of a study: means over seeds with their spread, differences to a "
                     "baseline with a paired t-test, costs, and every run that does not count, "
                     "with the reason.");
    line.rest("STUDY|RUN", paths, "a study's file or folder, or run folders")
        .option("--baseline", baseline, "the cell to compare with (default: the study's)")
        .option("--metrics", metrics, "those to show, as in loss,accuracy (default: the study's)")
        .choice("--select", select, {"last", "best"}, "the evaluation of a run that counts")
        .choice("--format", format, {"markdown", "csv", "json"}, "default: markdown")
        .option("--output", output, "write to this file instead of stdout, replacing it")
        .flag("--results-only", results_only,
              "leave out clocks and memory, so that the same results give the same text");
    if (!line.parse(arguments, out)) return false;
    if (paths.empty())
      throw ConfigError("fovea report: give a study's file or folder, or run folders");
    return true;
  }

  std::optional<study::Select> selection() const {
    if (select.empty()) return std::nullopt;
    return select == "best" ? study::Select::best : study::Select::last;
  }
};

// The file may say something else of baseline, metrics and select than when the sweep ran.
study::ReportInput of_file(const Asked& asked) {
  const study::StudyFile file = study::read_study(asked.paths[0]);
  study::ReportInput input = study::report_of_study(
      file.out_dir, asked.selection() ? asked.selection() : file.layout.select);
  study::require_same_name(file, input.layout.study);
  if (input.layout.axes == file.layout.axes) {
    input.layout.baseline = file.layout.baseline;
    input.layout.metrics = file.layout.metrics;
  } else {
    log::warn(cat(asked.paths[0],
                  ": has other axes than at the last sweep, which is what this "
                  "report shows; fovea sweep makes the new runs"));
  }
  return input;
}

study::ReportInput input_of(const Asked& asked) {
  const std::string& first = asked.paths[0];
  const bool one = asked.paths.size() == 1;
  if (one && fs::is_regular_file(first)) return of_file(asked);
  if (one && fs::exists(study::ledger_file(first)))
    return study::report_of_study(first, asked.selection());
  for (const std::string& path : asked.paths) {
    if (!one && (fs::is_regular_file(path) || fs::exists(study::ledger_file(path))))
      throw ConfigError(cat("fovea report: takes one study, or several run folders, but there are ",
                            asked.paths.size(), " paths, and ", path,
                            fs::is_directory(path) ? " is a study's folder" : " is a file"));
  }
  return study::report_of_runs(asked.paths, asked.selection().value_or(study::Select::last));
}

void take_wishes(study::ReportInput& input, const Asked& asked) {
  if (!asked.baseline.empty()) {
    std::vector<study::Cell> cells;
    for (const study::ReportCell& cell : input.cells)
      cells.push_back({cell.name, cell.labels, {}, {}});
    input.layout.baseline = study::baseline_named(asked.baseline, cells, "--baseline");
  }
  if (asked.metrics.empty()) return;
  input.layout.metrics.clear();
  std::istringstream list(asked.metrics);
  for (std::string name; std::getline(list, name, ',');)
    input.layout.metrics.push_back(name);
}

}  // namespace

ExitCode report(const Arguments& arguments, Output& out) {
  Asked asked;
  if (!asked.parse(arguments, out)) return ExitCode::ok;
  std::optional<ReplacedFile> file;
  if (!asked.output.empty()) file.emplace(asked.output);
  study::ReportInput input = input_of(asked);
  take_wishes(input, asked);
  const study::Report report = study::make_report(std::move(input), asked.results_only);
  const std::string json = study::report_json(report);
  const std::string text = asked.format == "csv"    ? study::report_csv(report)
                           : asked.format == "json" ? json + "\n"
                                                    : study::report_markdown(report);
  if (file) {
    write_file_synced(file->temporary(), text);
    file->finish();
    out.line(cat("wrote ", asked.output));
  } else {
    out.line(text);
  }
  out.record().raw("report", json);
  return ExitCode::ok;
}

}  // namespace fovea::apps
