#pragma once
// What a study's runs say together: a table a metric, costs, and every run that does not count,
// with the reason.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "study/run_record.h"
#include "study/statistics.h"
#include "study/study_file.h"

namespace fovea::study {

struct ReportCell {
  std::string name;
  std::vector<std::string> labels;  // one an axis
};

struct ReportRun {
  std::size_t cell = 0;
  std::string cell_name;  // also of a run whose cell is not in the study any more
  std::int64_t seed = 0;
  std::string folder;  // below ReportInput::root
  RunRecord record;
  int code = 0;  // that a failed run ended with; 0: unknown
};

// What there is to report about.
struct ReportInput {
  Layout layout;
  std::string root;  // the study's folder; empty for runs of no study
  std::vector<ReportCell> cells;
  std::vector<ReportRun> runs;    // of the cells
  std::vector<ReportRun> others;  // that the ledger knows, but the study has no more
};

struct CellScore {
  Summary summary;  // over the finished seeds that have the metric
  // Of an accuracy: the standard error that the size of the test set alone gives.
  std::optional<double> binomial_error;
  std::optional<std::size_t> baseline;  // the cell compared with; itself: it is the baseline
  std::optional<PairedTest> test;       // against it, over the seeds that both have
};

struct MetricTable {
  std::string metric;
  std::vector<CellScore> cells;  // as ReportInput::cells
};

// Means over the runs of a cell that tell; the largest for memory.
struct CellCost {
  std::optional<double> parameters, tokens_per_second, peak_bytes, flops, executed_flops, seconds;
};

struct CellCount {
  int planned = 0, finished = 0, unfinished = 0, failed = 0;
};

struct Report {
  ReportInput input;
  std::vector<CellCount> counts;  // as ReportInput::cells, like costs
  std::vector<MetricTable> tables;
  std::vector<CellCost> costs;
  // Clocks and memory are left out: the same results then give the same text.
  bool results_only = false;
};

// Throws ConfigError for a metric that no finished run has, with the nearest.
Report make_report(ReportInput input, bool results_only);

// "finished" runs without metrics count as not usable: this says of any run why it does not count,
// or "".
std::string why_not_counted(const ReportRun& run);

std::string report_markdown(const Report& report);
std::string report_csv(const Report& report);   // a line a metric and cell
std::string report_json(const Report& report);  // one object, a line

}  // namespace fovea::study
