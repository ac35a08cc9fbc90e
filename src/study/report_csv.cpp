// A line a metric and cell, as RFC 4180 has it; numbers in full.

#include "core/text.h"
#include "study/report.h"
#include "train/json_text.h"

namespace fovea::study {

namespace {

std::string field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"') out.push_back('"');
    out.push_back(c);
  }
  return out + "\"";
}

std::string number(const std::optional<double>& value) {
  return value ? train::json_number(*value) : "";
}

// Why runs of the cell do not count, one after the other.
std::string notes_of(const Report& report, std::size_t cell) {
  std::vector<std::string> notes;
  for (const ReportRun& run : report.input.runs) {
    const std::string why = why_not_counted(run);
    if (run.cell != cell || (run.record.state == "finished" && why.empty())) continue;
    notes.push_back(cat("seed ", run.seed, " ", run.record.state,
                        run.code == 0 ? "" : cat(" with code ", run.code),
                        why.empty() ? "" : cat(": ", why)));
  }
  return join(notes, "; ");
}

class Line {
 public:
  Line& add(const std::string& text) {
    fields_.push_back(field(text));
    return *this;
  }
  Line& add(const std::optional<double>& value) {
    fields_.push_back(number(value));
    return *this;
  }
  Line& add(const std::optional<Interval>& interval) {
    return add(interval ? std::optional(interval->low) : std::nullopt)
        .add(interval ? std::optional(interval->high) : std::nullopt);
  }
  std::string str() const { return join(fields_, ",") + "\r\n"; }

 private:
  std::vector<std::string> fields_;
};

std::string head(const Report& report) {
  Line line;
  line.add(std::string("cell"));
  for (const std::string& axis : report.input.layout.axes)
    line.add(axis);
  for (const char* name : {"metric",
                           "planned",
                           "finished",
                           "unfinished",
                           "failed",
                           "seeds",
                           "mean",
                           "std",
                           "low",
                           "high",
                           "binomial_error",
                           "baseline",
                           "pairs",
                           "difference",
                           "difference_std",
                           "difference_low",
                           "difference_high",
                           "t",
                           "p",
                           "parameters",
                           "flops",
                           "executed_flops"})
    line.add(std::string(name));
  if (!report.results_only) {
    for (const char* name : {"tokens_per_second", "peak_bytes", "seconds"})
      line.add(std::string(name));
  }
  return line.add(std::string("notes")).str();
}

std::string line_of(const Report& report, std::size_t cell, const std::string& metric,
                    const CellScore& score) {
  const ReportCell& c = report.input.cells[cell];
  const CellCount& count = report.counts[cell];
  const CellCost& cost = report.costs[cell];
  const PairedTest test = score.test.value_or(PairedTest());
  const bool any = score.summary.count > 0, compared = score.test && test.pairs > 0;
  Line line;
  line.add(c.name);
  for (const std::string& label : c.labels)
    line.add(label);
  line.add(metric);
  for (const int number :
       {count.planned, count.finished, count.unfinished, count.failed, score.summary.count})
    line.add(cat(number));
  line.add(any ? std::optional(score.summary.mean) : std::nullopt).add(score.summary.deviation);
  line.add(score.summary.interval).add(score.binomial_error);
  line.add(score.baseline ? report.input.cells[*score.baseline].name : "");
  line.add(score.test ? cat(test.pairs) : "");
  line.add(compared ? std::optional(test.difference) : std::nullopt).add(test.deviation);
  line.add(test.interval).add(test.t).add(test.p);
  line.add(cost.parameters).add(cost.flops).add(cost.executed_flops);
  if (!report.results_only) line.add(cost.tokens_per_second).add(cost.peak_bytes).add(cost.seconds);
  return line.add(notes_of(report, cell)).str();
}

}  // namespace

std::string report_csv(const Report& report) {
  std::string out = head(report);
  for (std::size_t cell = 0; cell < report.input.cells.size(); ++cell) {
    for (const MetricTable& table : report.tables)
      out += line_of(report, cell, table.metric, table.cells[cell]);
    if (report.tables.empty()) out += line_of(report, cell, "", {});
  }
  return out;
}

}  // namespace fovea::study
