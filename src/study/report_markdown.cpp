// Tables for people.

#include <algorithm>
#include <cstdio>

#include "core/text.h"
#include "study/report.h"
#include "train/run_log.h"

namespace fovea::study {

namespace {

constexpr double kMarked = 0.05, kMarkedTwice = 0.01;

std::string shown(double value, int digits) {
  char text[40];
  std::snprintf(text, sizeof text, "%.*g", digits, value);
  return text;
}

std::string signed_number(double value, int digits) {
  return cat(value > 0 ? "+" : "", shown(value, digits));
}

std::string shown(const Interval& interval) {
  return cat("[", shown(interval.low, 5), ", ", shown(interval.high, 5), "]");
}

// A cell of a table: no bar and no line break may end it.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out.push_back('\\');
    if (c == '\n') {
      out += "; ";
    } else if (static_cast<unsigned char>(c) >= 0x20) {
      out.push_back(c);
    }
  }
  return out;
}

std::string line_of(const std::vector<std::string>& cells) {
  return cat("| ", join(cells, " | "), " |\n");
}

std::string head_of(const std::vector<std::string>& titles) {
  return line_of(titles) + line_of(std::vector<std::string>(titles.size(), "---"));
}

std::vector<std::string> labels_of(const ReportCell& cell) {
  std::vector<std::string> out;
  for (const std::string& label : cell.labels)
    out.push_back(escaped(label));
  return out;
}

std::string seeds_text(int counted, int planned) {
  return counted == planned ? cat(counted) : cat(counted, " of ", planned);
}

// t and p, or why there are none.
void add_test(std::vector<std::string>& row, const CellScore& score, std::size_t cell,
              const std::vector<ReportCell>& cells) {
  if (!score.baseline || *score.baseline == cell) {
    const std::string what = score.baseline ? "baseline" : "no baseline";
    row.insert(row.end(), {what, "", "", ""});
    return;
  }
  const PairedTest& test = *score.test;
  const std::string against = escaped(cells[*score.baseline].name);
  const std::string pairs = cat(" (", test.pairs, test.pairs == 1 ? " pair)" : " pairs)");
  row.push_back(test.pairs == 0 ? cat("to ", against)
                                : cat(signed_number(test.difference, 4), " to ", against, pairs));
  row.push_back(test.interval ? shown(*test.interval) : "");
  row.push_back(test.t ? shown(*test.t, 4) : test.why_none);
  const char* const mark = !test.p                  ? ""
                           : *test.p < kMarkedTwice ? " **"
                           : *test.p < kMarked      ? " *"
                                                    : "";
  row.push_back(test.p ? shown(*test.p, 3) + mark : "");
}

bool has_baseline(const Report& report) {
  return !report.input.layout.baseline.empty();
}

std::string metric_text(const Report& report, const MetricTable& table) {
  std::vector<std::string> titles = report.input.layout.axes;
  for (std::string& title : titles)
    title = escaped(title);
  titles.insert(titles.end(), {"seeds", "mean", "std", "95 % interval"});
  const bool binomial = std::any_of(table.cells.begin(), table.cells.end(),
                                    [](const CellScore& s) { return s.binomial_error; });
  if (binomial) titles.emplace_back("binomial error");
  if (has_baseline(report))
    titles.insert(titles.end(), {"difference", "95 % interval of it", "t", "p"});
  std::string out = cat("\n## ", escaped(table.metric), "\n\n", head_of(titles));
  for (std::size_t cell = 0; cell < table.cells.size(); ++cell) {
    const CellScore& score = table.cells[cell];
    const Summary& s = score.summary;
    std::vector<std::string> row = labels_of(report.input.cells[cell]);
    row.push_back(seeds_text(s.count, report.counts[cell].planned));
    row.push_back(s.count == 0 ? "" : shown(s.mean, 5));
    row.push_back(s.deviation    ? shown(*s.deviation, 3)
                  : s.count == 1 ? "none: only 1 seed"
                                 : "none: no seed");
    row.push_back(s.interval ? shown(*s.interval) : "");
    if (binomial) row.push_back(score.binomial_error ? shown(*score.binomial_error, 2) : "");
    if (has_baseline(report)) add_test(row, score, cell, report.input.cells);
    out += line_of(row);
  }
  return out;
}

std::string costs_text(const Report& report) {
  std::vector<std::string> titles = report.input.layout.axes;
  for (std::string& title : titles)
    title = escaped(title);
  titles.insert(titles.end(), {"parameters", "FLOPs of a step", "executed"});
  if (!report.results_only) titles.insert(titles.end(), {"tokens/s", "peak memory", "training"});
  std::string out = cat("\n## Cost\n\n", head_of(titles));
  const auto count = [](const std::optional<double>& value) {
    return value ? human_count(*value) : std::string();
  };
  for (std::size_t cell = 0; cell < report.costs.size(); ++cell) {
    const CellCost& cost = report.costs[cell];
    std::vector<std::string> row = labels_of(report.input.cells[cell]);
    row.insert(row.end(), {count(cost.parameters), count(cost.flops), count(cost.executed_flops)});
    if (!report.results_only) {
      row.push_back(count(cost.tokens_per_second));
      row.push_back(cost.peak_bytes ? human_bytes(*cost.peak_bytes) : "");
      row.push_back(cost.seconds ? train::human_duration(*cost.seconds) : "");
    }
    out += line_of(row);
  }
  return out;
}

std::string runs_text(const std::string& title, const std::vector<const ReportRun*>& runs) {
  if (runs.empty()) return "";
  std::string out =
      cat("\n## ", title, "\n\n", head_of({"cell", "seed", "state", "exit code", "why", "folder"}));
  for (const ReportRun* run : runs) {
    out += line_of({escaped(run->cell_name), cat(run->seed), run->record.state,
                    run->code == 0 ? "" : cat(run->code), escaped(why_not_counted(*run)),
                    escaped(run->folder)});
  }
  return out;
}

std::string counts_text(const Report& report) {
  CellCount sum;
  for (const CellCount& count : report.counts) {
    sum.planned += count.planned;
    sum.finished += count.finished;
    sum.unfinished += count.unfinished;
    sum.failed += count.failed;
  }
  std::string out = cat(sum.planned, sum.planned == 1 ? " run, " : " runs, ", sum.finished,
                        sum.finished == 1 ? " has" : " have", " finished");
  if (sum.unfinished > 0) out += cat(", ", sum.unfinished, " not yet");
  if (sum.failed > 0) out += cat(", ", sum.failed, " failed");
  return cat(out, ". Counted is ",
             report.input.layout.select == Select::best
                 ? "the evaluation that the task calls a run's best."
                 : "a run's last evaluation.",
             report.results_only || report.input.root.empty()
                 ? ""
                 : cat(" Folders are in ", report.input.root, "."));
}

std::string notes_text(const Report& report) {
  std::string out =
      "\nOver seeds: std is the sample standard deviation (n - 1), intervals are Student's t at "
      "95 %.";
  if (has_baseline(report)) {
    out +=
        " Differences are to the baseline's runs of the same seeds; t and p are of the paired "
        "two-sided t-test, * p < 0.05, ** p < 0.01, not corrected for the number of comparisons.";
  }
  if (!report.results_only) {
    out +=
        " Speeds and times are the runs' own clocks: runs that shared a machine slowed each "
        "other.";
  }
  return out + "\n";
}

}  // namespace

std::string report_markdown(const Report& report) {
  const ReportInput& input = report.input;
  std::string out = cat("# ", escaped(input.layout.study), "\n\n", counts_text(report), "\n");
  for (const MetricTable& table : report.tables)
    out += metric_text(report, table);
  out += notes_text(report) + costs_text(report);
  std::vector<const ReportRun*> missing, others;
  for (const ReportRun& run : input.runs) {
    if (run.record.state != "finished" || !run.record.message.empty()) missing.push_back(&run);
  }
  for (const ReportRun& run : input.others)
    others.push_back(&run);
  return out + runs_text("Runs that do not count", missing) +
         runs_text("Runs that are not in the study any more", others);
}

}  // namespace fovea::study
