#include "study/run_record.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file.h"
#include "core/text.h"
#include "train/run_folder.h"
#include "train/run_status.h"

namespace fovea::study {

namespace {

using Json = nlohmann::ordered_json;

// The lines of a file that are JSON objects; the last one of a run that trains may be cut.
std::vector<Json> objects_in(const std::string& path) {
  std::vector<Json> out;
  std::istringstream lines(read_file(path));
  for (std::string line; std::getline(lines, line);) {
    Json object = Json::parse(line, nullptr, false);
    if (object.is_object()) out.push_back(std::move(object));
  }
  return out;
}

std::optional<double> number(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

void read_metrics(RunRecord& run, const std::string& folder, std::int64_t best_step,
                  Select select) {
  const Json* counted = nullptr;
  const std::vector<Json> lines = objects_in(cat(folder, "/metrics.jsonl"));
  for (const Json& line : lines) {
    if (!line.contains("eval")) continue;
    const bool wanted = select == Select::last || number(line, "step") == best_step;
    if (wanted) counted = &line;
  }
  if (counted == nullptr) {
    run.message = select == Select::last ? "it was never evaluated"
                                         : "it has no best evaluation: give eval.interval";
    return;
  }
  std::vector<std::string> infinite;
  for (const auto& [key, value] : counted->items()) {
    if (key == "step" || key == "eval") continue;
    if (value.is_number() && std::isfinite(value.get<double>())) {
      run.metrics.emplace_back(key, value.get<double>());
    } else {
      infinite.push_back(key);
    }
  }
  if (!infinite.empty()) run.message = cat("not finite: ", join(infinite, ", "));
}

void read_cost(RunCost& cost, const std::string& folder) {
  std::vector<double> speeds;
  for (const Json& line : objects_in(cat(folder, "/perf.jsonl"))) {
    if (const auto speed = number(line, "tokens_per_second")) speeds.push_back(*speed);
    if (const auto peak = number(line, "peak_bytes"))
      cost.peak_bytes = std::max(cost.peak_bytes.value_or(0), *peak);
    if (const auto flops = number(line, "flops")) cost.flops = flops;
    if (const auto flops = number(line, "executed_flops")) cost.executed_flops = flops;
  }
  // The first line holds what a process does once.
  if (speeds.size() > 1) speeds.erase(speeds.begin());
  if (!speeds.empty()) cost.tokens_per_second = median(std::move(speeds));
}

}  // namespace

RunRecord read_run(const std::string& folder, Select select) {
  RunRecord run;
  const std::optional<train::RunStatus> status = train::read_status(folder);
  if (!status) {
    run.state = "not started";
    return run;
  }
  run.step = status->step;
  run.max_steps = status->max_steps;
  run.cost.seconds = status->seconds;
  if (status->parameters > 0) run.cost.parameters = static_cast<double>(status->parameters);
  run.state = status->ended ? "finished" : status->status == "failed" ? "failed" : "stopped";
  if (run.state == "failed") run.message = status->message;
  try {
    if (run.state != "finished" && train::is_in_use(folder)) run.state = "running";
    if (run.state == "finished")
      read_metrics(run, folder, status->best.any ? status->best.step : -1, select);
    read_cost(run.cost, folder);
  } catch (const IoError& e) {
    run.message = e.what();
  }
  return run;
}

}  // namespace fovea::study
