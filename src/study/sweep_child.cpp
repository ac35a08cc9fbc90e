#include "study/sweep_child.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <sstream>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include "core/error.h"
#include "core/file.h"
#include "core/text.h"
#include "train/run_folder.h"
#include "train/run_status.h"

namespace fovea::study {

namespace {

constexpr std::uint64_t kTail = 16'384;      // bytes of a file's end
constexpr std::size_t kMostMessage = 2'000;  // bytes kept of a failure's words

// The last whole lines of a file; none if it cannot be read.
std::vector<std::string> last_lines(const std::string& path) {
  std::vector<std::string> lines;
  try {
    const InputFile file(path);
    const std::uint64_t bytes = std::min(file.size(), kTail);
    std::string text(bytes, '\0');
    file.read_at(file.size() - bytes, text.data(), bytes);
    std::istringstream in(text);
    for (std::string line; std::getline(in, line) && !in.eof();)
      lines.push_back(line);
    if (bytes < file.size() && !lines.empty()) lines.erase(lines.begin());  // it may be cut
  } catch (const IoError&) {
    lines.clear();
  }
  return lines;
}

// What the process said of its failure: its errors, or else its last line.
std::string words_of(const std::string& log, const dist::ExitStatus& status) {
  constexpr std::string_view kError = "error: ";
  std::vector<std::string> errors;
  std::string last;
  for (const std::string& line : last_lines(log)) {
    if (line.starts_with(kError)) errors.push_back(line.substr(kError.size()));
    if (!line.empty()) last = line;
  }
  std::string out = join(errors, "\n");
  if (out.empty()) out = cat(dist::text_of(status), last.empty() ? "" : cat("; last line: ", last));
  return out.substr(0, kMostMessage);
}

void write_whole(const std::string& path, const std::string& text) {
  const std::string temporary = path + ".writing";
  write_file_synced(temporary, text);
  rename_over(temporary, path);
}

// For as long as a process is being started with it.
struct LogFile {
  int descriptor;
  explicit LogFile(const std::string& path)
      : descriptor(
            ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666)) {
    if (descriptor < 0) throw IoError(cat(path, ": cannot be written: ", std::strerror(errno)));
  }
  ~LogFile() { ::close(descriptor); }
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;
};

}  // namespace

SweepChild::SweepChild(const std::string& study_folder, const PlannedRun& run,
                       const SweepOptions& options, const std::string& device)
    : folder_(run.config.out_dir), log_(cat(study_folder, "/logs/", run.folder, ".log")) {
  const std::string config = cat(study_folder, "/configs/", run.folder, ".yaml");
  write_whole(config, run.config.resolved.yaml());
  dist::ChildOptions child;
  child.program = options.program.empty() ? dist::this_program() : options.program;
  child.arguments = {child.program, "train", config};
  if (run.config.train.threads == 0) {
    child.arguments.emplace_back("--threads");
    child.arguments.push_back(cat(std::max(1, options.threads / options.jobs)));
  }
  std::vector<std::string> settings;
  if (!device.empty()) settings.push_back(cat("CUDA_VISIBLE_DEVICES=", device));
  child.environment = dist::environment_with(settings);
  const LogFile log(log_);
  child.out = child.err = log.descriptor;
  process_ = std::make_unique<dist::ChildProcess>(child);
}

std::optional<ChildEnd> SweepChild::end(bool stopping) {
  const std::optional<dist::ExitStatus> status = process_->status();
  if (!status) return std::nullopt;
  ChildEnd out;
  out.code = status->signal != 0 ? 128 + status->signal : status->code;
  const bool by_signal = out.code == 128 + SIGINT || out.code == 128 + SIGTERM ||
                         out.code == 128 + SIGHUP || out.code == 128 + SIGKILL;
  const std::optional<train::RunStatus> left = train::read_status(folder_);
  if (out.code == 0 && left && left->ended) {
    out.state = RunState::finished;
  } else if (out.code == static_cast<int>(ExitCode::stopped) || (stopping && by_signal)) {
    out.state = RunState::stopped;
  } else {
    out.in_use = status->code == static_cast<int>(ExitCode::usage) && train::is_in_use(folder_);
    out.message = out.code != 0 ? words_of(log_, *status)
                                : cat("ended with code 0, but ", folder_, "/", train::kStatusName,
                                      " does not say that the run is finished");
  }
  return out;
}

std::int64_t step_reached(const std::string& run_folder) {
  constexpr std::string_view kStep = "{\"step\":";
  const std::vector<std::string> lines = last_lines(cat(run_folder, "/metrics.jsonl"));
  std::int64_t step = 0;
  if (!lines.empty() && lines.back().starts_with(kStep)) {
    const std::string& line = lines.back();
    std::from_chars(line.data() + kStep.size(), line.data() + line.size(), step);
  }
  return step;
}

}  // namespace fovea::study
