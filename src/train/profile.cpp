#include "train/profile.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <system_error>

#include "core/error.h"
#include "core/file.h"
#include "core/text.h"
#include "train/json_text.h"
#include "train/trainer.h"

namespace fovea::train {

namespace {

// Eager steps, the capture, and some replays.
constexpr int kWarmSteps = 8;
constexpr double kMsPerNs = 1e-6;

double ms_of(const KernelRecord& record) {
  return static_cast<double>(record.end - record.start) * kMsPerNs;
}

}  // namespace

Profile summed(const std::vector<KernelRecord>& records, std::int64_t steps) {
  Profile out;
  out.steps = steps;
  if (records.empty()) return out;
  std::map<std::string, KernelRow> rows;
  std::uint64_t first = records.front().start, last = records.front().end;
  for (const KernelRecord& record : records) {
    KernelRow& row = rows[record.name];
    row.name = record.name;
    ++row.calls;
    row.ms += ms_of(record);
    out.busy_ms += ms_of(record);
    first = std::min(first, record.start);
    last = std::max(last, record.end);
  }
  out.span_ms = static_cast<double>(last - first) * kMsPerNs;
  for (auto& [name, row] : rows) {
    row.share = out.busy_ms > 0 ? row.ms / out.busy_ms : 0;
    out.rows.push_back(std::move(row));
  }
  std::stable_sort(out.rows.begin(), out.rows.end(),
                   [](const KernelRow& a, const KernelRow& b) { return a.ms > b.ms; });
  return out;
}

std::string profile_text(const Profile& profile) {
  char line[96];
  std::snprintf(line, sizeof line, "%lld steps, %.3f ms each, %.3f ms of it at work\n",
                static_cast<long long>(profile.steps),
                profile.span_ms / static_cast<double>(profile.steps),
                profile.busy_ms / static_cast<double>(profile.steps));
  std::string out = line;
  out += "  total ms  share   calls  ms a call  kernel";
  for (const KernelRow& row : profile.rows) {
    std::snprintf(line, sizeof line, "\n%10.3f %5.1f%% %7lld %10.4f  ", row.ms, 100 * row.share,
                  static_cast<long long>(row.calls), row.ms / static_cast<double>(row.calls));
    out += line + row.name;
  }
  return out;
}

std::string profile_json(const Profile& profile) {
  std::vector<std::string> rows;
  for (const KernelRow& row : profile.rows) {
    JsonObject object;
    object.add("kernel", row.name).add("calls", row.calls).add("ms", row.ms);
    rows.push_back(object.add("share", row.share).str());
  }
  JsonObject out;
  out.add("steps", profile.steps).add("span_ms", profile.span_ms);
  out.add("busy_ms", profile.busy_ms).add("table", profile.table).add("trace", profile.trace);
  return out.raw("kernels", cat("[", join(rows, ","), "]")).str();
}

std::string chrome_trace(const std::vector<KernelRecord>& records) {
  const std::uint64_t first = records.empty() ? 0 : records.front().start;
  std::vector<std::string> events;
  for (const KernelRecord& record : records) {
    JsonObject event;
    event.add("name", record.name).add("ph", "X").add("pid", 0).add("tid", record.stream);
    event.add("ts", static_cast<double>(record.start - first) * 1e-3);  // microseconds
    events.push_back(event.add("dur", ms_of(record) * 1e3).str());
  }
  return cat("{\"traceEvents\":[\n", join(events, ",\n"), "\n]}\n");
}

Profile profile(const RunConfig& config, std::int64_t steps) {
  const Device device = device_of(config.train);
  if (!device.is_cuda()) {
    const std::string why = why_not_cuda(config.train);
    throw DeviceError(cat("--profile records kernels of a GPU, and this run computes on the cpu",
                          why.empty() ? "" : cat(" (", why, ")")));
  }
  KernelTrace trace;
  // What cannot be written is to be known before anything is timed.
  std::error_code error;
  std::filesystem::create_directories(config.out_dir, error);
  if (error) throw IoError(cat(config.out_dir, ": cannot be made: ", error.message()));
  const std::string table_path = config.out_dir + "/profile.txt",
                    trace_path = config.out_dir + "/trace.json";
  ReplacedFile table(table_path), events(trace_path);
  Trainer trainer(config, device);
  for (int i = 0; i < kWarmSteps; ++i)
    trainer.advance();
  trainer.stream().synchronize();
  trace.take();
  for (std::int64_t i = 0; i < steps; ++i)
    trainer.advance();
  trainer.stream().synchronize();
  const std::vector<KernelRecord> records = trace.take();
  if (records.empty()) throw DeviceError("CUPTI recorded nothing; is another profiler running?");
  trainer.flush();

  Profile result = summed(records, steps);
  result.table = table_path;
  result.trace = trace_path;
  write_file_synced(table.temporary(), profile_text(result) + "\n");
  table.finish();
  write_file_synced(events.temporary(), chrome_trace(records));
  events.finish();
  return result;
}

}  // namespace fovea::train
