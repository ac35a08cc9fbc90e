#include "study/report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "core/error.h"
#include "core/text.h"

namespace fovea::study {

namespace {

// Counts that an evaluation reports beside its scores.
constexpr std::array<std::string_view, 3> kCounts = {"targets", "bytes", "nats"};

const double* metric_of(const ReportRun& run, std::string_view name) {
  for (const auto& [metric, value] : run.record.metrics) {
    if (metric == name) return &value;
  }
  return nullptr;
}

std::vector<std::string> metrics_of(const ReportInput& input) {
  std::vector<std::string> all;
  for (const ReportRun& run : input.runs) {
    for (const auto& [metric, value] : run.record.metrics) {
      if (std::find(all.begin(), all.end(), metric) == all.end()) all.push_back(metric);
    }
  }
  if (!input.layout.metrics.empty()) {
    for (const std::string& wanted : input.layout.metrics) {
      if (all.empty() || std::find(all.begin(), all.end(), wanted) != all.end()) continue;
      const std::string near = nearest(wanted, all);
      throw ConfigError(
          cat("metrics: no run reports '", wanted, "'; ",
              near.empty() ? cat("there are ", join(all, ", ")) : cat("did you mean ", near, "?")));
    }
    return input.layout.metrics;
  }
  std::erase_if(all, [](const std::string& name) {
    return std::find(kCounts.begin(), kCounts.end(), name) != kCounts.end();
  });
  return all;
}

std::optional<std::size_t> baseline_of(const ReportInput& input, std::size_t cell) {
  const auto& pattern = input.layout.baseline;
  std::vector<std::string> labels = input.cells[cell].labels;
  if (pattern.empty() || pattern.size() != labels.size()) return std::nullopt;
  for (std::size_t axis = 0; axis < pattern.size(); ++axis)
    labels[axis] = pattern[axis].value_or(labels[axis]);
  for (std::size_t other = 0; other < input.cells.size(); ++other) {
    if (input.cells[other].labels == labels) return other;
  }
  return std::nullopt;
}

// seed -> value of the finished runs.
using Values = std::map<std::int64_t, double>;

std::optional<double> binomial_error(const ReportInput& input, std::size_t cell, double accuracy) {
  std::vector<double> sizes;
  for (const ReportRun& run : input.runs) {
    const double* const targets = metric_of(run, "targets");
    if (run.cell == cell && targets != nullptr) sizes.push_back(*targets);
  }
  if (sizes.empty() || accuracy < 0 || accuracy > 1) return std::nullopt;
  return std::sqrt(accuracy * (1 - accuracy) / summarise(sizes).mean);
}

MetricTable table_of(const ReportInput& input, const std::string& metric) {
  std::vector<Values> values(input.cells.size());
  for (const ReportRun& run : input.runs) {
    if (const double* value = metric_of(run, metric)) values[run.cell][run.seed] = *value;
  }
  MetricTable table{metric, {}};
  for (std::size_t cell = 0; cell < input.cells.size(); ++cell) {
    std::vector<double> own, mine, theirs;
    for (const auto& [seed, value] : values[cell])
      own.push_back(value);
    CellScore score;
    score.summary = summarise(own);
    score.baseline = baseline_of(input, cell);
    if (metric == "accuracy" && !own.empty())
      score.binomial_error = binomial_error(input, cell, score.summary.mean);
    if (score.baseline && *score.baseline != cell) {
      for (const auto& [seed, value] : values[cell]) {
        const auto other = values[*score.baseline].find(seed);
        if (other == values[*score.baseline].end()) continue;
        mine.push_back(value);
        theirs.push_back(other->second);
      }
      score.test = paired_t_test(mine, theirs);
    }
    table.cells.push_back(std::move(score));
  }
  return table;
}

CellCost cost_of(const ReportInput& input, std::size_t cell) {
  const auto mean = [&](std::optional<double> RunCost::*field) -> std::optional<double> {
    std::vector<double> values;
    for (const ReportRun& run : input.runs) {
      const std::optional<double>& value = run.record.cost.*field;
      if (run.cell == cell && run.record.state == "finished" && value) values.push_back(*value);
    }
    return values.empty() ? std::nullopt : std::optional(summarise(values).mean);
  };
  CellCost cost;
  cost.parameters = mean(&RunCost::parameters);
  cost.tokens_per_second = mean(&RunCost::tokens_per_second);
  cost.flops = mean(&RunCost::flops);
  cost.executed_flops = mean(&RunCost::executed_flops);
  cost.seconds = mean(&RunCost::seconds);
  for (const ReportRun& run : input.runs) {
    if (run.cell != cell || run.record.state != "finished" || !run.record.cost.peak_bytes) continue;
    cost.peak_bytes = std::max(cost.peak_bytes.value_or(0), *run.record.cost.peak_bytes);
  }
  return cost;
}

CellCount count_of(const ReportInput& input, std::size_t cell) {
  CellCount count;
  for (const ReportRun& run : input.runs) {
    if (run.cell != cell) continue;
    ++count.planned;
    (run.record.state == "finished" ? count.finished
     : run.record.state == "failed" ? count.failed
                                    : count.unfinished)++;
  }
  return count;
}

}  // namespace

std::string why_not_counted(const ReportRun& run) {
  const RunRecord& record = run.record;
  if (record.state == "finished") return record.message;
  if (!record.message.empty()) return record.message;
  if (record.state == "not started") return "";
  return record.max_steps > 0 ? cat("at step ", record.step, " of ", record.max_steps)
                              : cat("at step ", record.step);
}

Report make_report(ReportInput input, bool results_only) {
  Report report;
  for (const std::string& metric : metrics_of(input))
    report.tables.push_back(table_of(input, metric));
  for (std::size_t cell = 0; cell < input.cells.size(); ++cell) {
    report.counts.push_back(count_of(input, cell));
    report.costs.push_back(cost_of(input, cell));
  }
  report.input = std::move(input);
  report.results_only = results_only;
  return report;
}

}  // namespace fovea::study
