// The whole report as one object: numbers in full, null where there is none.

#include "core/text.h"
#include "study/report.h"
#include "train/json_text.h"

namespace fovea::study {

namespace {

using train::json_number;
using train::json_string;
using train::JsonObject;

std::string json(const std::optional<double>& value) {
  return value ? json_number(*value) : "null";
}

std::string json(const std::optional<Interval>& interval) {
  return interval ? cat("[", json_number(interval->low), ",", json_number(interval->high), "]")
                  : "null";
}

std::string list(const std::vector<std::string>& values) {
  return cat("[", join(values, ","), "]");
}

std::string texts(const std::vector<std::string>& values) {
  std::vector<std::string> out;
  out.reserve(values.size());
  for (const std::string& value : values)
    out.push_back(json_string(value));
  return list(out);
}

std::string test_json(const CellScore& score, const std::vector<ReportCell>& cells) {
  if (!score.test) return "null";
  const PairedTest& test = *score.test;
  JsonObject out;
  out.add("baseline", cells[*score.baseline].name).add("pairs", test.pairs);
  out.raw("difference", test.pairs > 0 ? json_number(test.difference) : "null");
  out.raw("std", json(test.deviation)).raw("interval", json(test.interval));
  out.raw("t", json(test.t)).raw("p", json(test.p));
  if (!test.why_none.empty()) out.add("why_none", test.why_none);
  return out.str();
}

std::string tables_json(const Report& report) {
  JsonObject out;
  for (const MetricTable& table : report.tables) {
    std::vector<std::string> cells;
    for (std::size_t cell = 0; cell < table.cells.size(); ++cell) {
      const CellScore& score = table.cells[cell];
      JsonObject row;
      row.add("cell", report.input.cells[cell].name).add("seeds", score.summary.count);
      row.raw("mean", score.summary.count > 0 ? json_number(score.summary.mean) : "null");
      row.raw("std", json(score.summary.deviation));
      row.raw("interval", json(score.summary.interval));
      if (score.binomial_error) row.add("binomial_error", *score.binomial_error);
      row.raw("test", test_json(score, report.input.cells));
      cells.push_back(row.str());
    }
    out.raw(table.metric, list(cells));
  }
  return out.str();
}

std::string cells_json(const Report& report) {
  std::vector<std::string> out;
  for (std::size_t cell = 0; cell < report.input.cells.size(); ++cell) {
    const CellCount& count = report.counts[cell];
    const CellCost& cost = report.costs[cell];
    JsonObject row;
    row.add("name", report.input.cells[cell].name);
    row.raw("labels", texts(report.input.cells[cell].labels));
    row.add("planned", count.planned).add("finished", count.finished);
    row.add("unfinished", count.unfinished).add("failed", count.failed);
    row.raw("parameters", json(cost.parameters)).raw("flops", json(cost.flops));
    row.raw("executed_flops", json(cost.executed_flops));
    if (!report.results_only) {
      row.raw("tokens_per_second", json(cost.tokens_per_second));
      row.raw("peak_bytes", json(cost.peak_bytes)).raw("seconds", json(cost.seconds));
    }
    out.push_back(row.str());
  }
  return list(out);
}

std::string runs_json(const std::vector<ReportRun>& runs) {
  std::vector<std::string> out;
  for (const ReportRun& run : runs) {
    JsonObject row, metrics;
    for (const auto& [name, value] : run.record.metrics)
      metrics.add(name, value);
    row.add("cell", run.cell_name).add("seed", run.seed).add("state", run.record.state);
    row.add("step", run.record.step).add("max_steps", run.record.max_steps);
    if (run.code != 0) row.add("code", run.code);
    if (const std::string why = why_not_counted(run); !why.empty()) row.add("why", why);
    row.add("folder", run.folder).raw("metrics", metrics.str());
    out.push_back(row.str());
  }
  return list(out);
}

}  // namespace

std::string report_json(const Report& report) {
  const Layout& layout = report.input.layout;
  JsonObject out;
  out.add("study", layout.study).raw("axes", texts(layout.axes));
  if (!report.results_only) out.add("root", report.input.root);
  out.add("select", layout.select == Select::best ? "best" : "last");
  out.raw("cells", cells_json(report)).raw("metrics", tables_json(report));
  out.raw("runs", runs_json(report.input.runs));
  return out.raw("others", runs_json(report.input.others)).str();
}

}  // namespace fovea::study
