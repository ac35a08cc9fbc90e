#include "train/run_log.h"

#include <cmath>
#include <cstdio>

#include "core/log.h"
#include "core/text.h"
#include "data/hash.h"
#include "train/json_text.h"

namespace fovea::train {

namespace {

template <class... T>
std::string printed(const char* format, T... values) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, format, values...);
  return buffer;
}

std::string metrics_line(const StepRecord& r) {
  JsonObject line;
  line.add("step", r.step).add("tokens", r.tokens).add("loss", r.loss);
  if (r.aux) line.add("aux", *r.aux);
  line.add("grad_norm", r.grad_norm).add("lr", r.lr);
  if (r.scale) line.add("scale", *r.scale);
  if (r.scale || r.skipped > 0) line.add("skipped", r.skipped);
  return line.add("data_hash", data::hash_hex(r.data_hash)).str();
}

std::string perf_line(const StepRecord& r, const PerfRecord& p) {
  JsonObject line;
  line.add("step", r.step).add("seconds", p.seconds).add("step_seconds", p.step_seconds);
  line.add("tokens_per_second", p.tokens_per_second).add("data_fraction", p.data_fraction);
  line.add("peak_bytes", p.peak_bytes).add("persistent_bytes", p.persistent_bytes);
  line.add("activation_bytes", p.activation_bytes);
  line.add("flops", p.flops).add("executed_flops", p.executed_flops);
  if (p.mfu) line.add("mfu", *p.mfu);
  return line.str();
}

}  // namespace

std::string human_duration(double seconds) {
  const auto whole = static_cast<long long>(std::llround(std::fmax(0, seconds)));
  if (whole >= 86400) return printed("%lldd%02lldh", whole / 86400, whole / 3600 % 24);
  if (whole >= 3600) return printed("%lldh%02lldm", whole / 3600, whole / 60 % 60);
  if (whole >= 60) return printed("%lldm%02llds", whole / 60, whole % 60);
  return printed("%llds", whole);
}

std::string step_line(const StepRecord& r, const PerfRecord& p) {
  std::string out = cat("step ", r.step);
  if (r.max_steps > 0) {
    out += cat(
        "/", r.max_steps, " ",
        printed("%.1f%%", 100 * static_cast<double>(r.step) / static_cast<double>(r.max_steps)));
  }
  out += printed(" | loss %.4f", r.loss);
  if (r.aux) out += printed(" | aux %.4g", *r.aux);
  out += printed(" | gnorm %.2f | lr %.1e", r.grad_norm, r.lr);
  if (r.scale) out += printed(" | scale %.0f", *r.scale);
  if (r.skipped > 0) out += cat(" | skipped ", r.skipped);
  out += cat(" | ", human_count(p.tokens_per_second), " tok/s");
  if (p.mfu) out += printed(" | %.1f%% MFU", 100 * *p.mfu);
  out += cat(" | mem ", human_bytes(p.peak_bytes));
  out += printed(" | data %.1f%%", 100 * p.data_fraction);
  if (p.eta_seconds >= 0) out += cat(" | eta ", human_duration(p.eta_seconds));
  return out;
}

RunLog::RunLog(const std::string& folder, const FileMark& metrics, const FileMark& perf)
    : metrics_(cat(folder, "/metrics.jsonl"), metrics), perf_(cat(folder, "/perf.jsonl"), perf) {}

void RunLog::step(const StepRecord& record, const PerfRecord& perf) {
  metrics_.append(metrics_line(record));
  perf_.append(perf_line(record, perf));
  log::line(step_line(record, perf));
}

void RunLog::measures(const StepRecord& record) {
  if (record.measures.empty()) return;
  JsonObject line;
  line.add("step", record.step);
  for (const nn::Measure& measure : record.measures)
    line.add(measure.name, measure.value);
  metrics_.append(line.str());
}

void RunLog::evaluation(std::int64_t step, std::string_view split, const Report& report) {
  JsonObject line;
  line.add("step", step).add("eval", split);
  std::string text = cat("eval ", step, " | ", split);
  for (const auto& [name, value] : report) {
    line.add(name, value);
    text += cat(" | ", name, " ", printed("%.6g", value));
  }
  metrics_.append(line.str());
  log::line(text);
}

void RunLog::event(std::int64_t step, std::string_view name, double seconds,
                   std::size_t peak_bytes) {
  perf_.append(JsonObject()
                   .add("step", step)
                   .add("event", name)
                   .add("event_seconds", seconds)
                   .add("peak_bytes", static_cast<double>(peak_bytes))
                   .str());
}

void RunLog::sync() {
  metrics_.sync();
  perf_.sync();
}

}  // namespace fovea::train
