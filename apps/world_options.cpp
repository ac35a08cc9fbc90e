#include "world_options.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <sstream>

#include "core/cuda_runtime.h"
#include "core/text.h"
#include "dist/launcher.h"
#include "dist/world.h"

namespace fovea::apps {

namespace {

constexpr std::array<std::string_view, 4> kFlags = {"--nproc", "--gpus", "--max-restarts",
                                                    "--min-ranks"};

// A count of at least 1, or 0 for text that is none.
int count_of(const std::string& text) {
  int count = 0;
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, count);
  return error == std::errc() && at == end && count > 0 ? count : 0;
}

// The arguments without the launcher's flags and their values.
Arguments without_flags(const Arguments& arguments) {
  Arguments out;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--") {
      out.insert(out.end(), arguments.begin() + static_cast<std::ptrdiff_t>(i), arguments.end());
      break;
    }
    const std::size_t equals = argument.find('=');
    const std::string name = argument.substr(0, equals);
    if (std::find(kFlags.begin(), kFlags.end(), name) == kFlags.end()) {
      out.push_back(argument);
    } else if (equals == std::string::npos) {
      ++i;
    }
  }
  return out;
}

// The first GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them.
std::vector<std::string> first_gpus(int count) {
  const int there = cuda::device_count();
  if (there < count) {
    throw DeviceError(
        there > 0 ? cat("--gpus asks for ", count, " GPUs, but there ",
                        there == 1 ? std::string("is 1") : cat("are ", there))
                  : cat("--gpus asks for ", count, ", but there is none: ", cuda::why_none()));
  }
  std::vector<std::string> out;
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) {
    std::istringstream names(visible);
    for (std::string name; std::getline(names, name, ',');)
      out.push_back(name);
  } else {
    for (int i = 0; i < count; ++i)
      out.push_back(cat(i));
  }
  out.resize(static_cast<std::size_t>(count));
  return out;
}

}  // namespace

std::vector<std::string> all_gpus() {
  const int there = cuda::device_count();
  return there > 1 ? first_gpus(there) : std::vector<std::string>();
}

void WorldOptions::declare(CommandLine& line) {
  line.option("--nproc", nproc_, 1, "run as N processes of this machine, on the CPU")
      .option("--gpus", gpus_,
              "run as N processes with one GPU of this machine each; all: as many");
}

void WorldOptions::declare_restarts(CommandLine& line) {
  line.option("--max-restarts", max_restarts_, 0,
              "start again, from the last checkpoint, when a process dies or is lost: N times at "
              "most")
      .option("--min-ranks", min_ranks_, 1,
              "a restart that gains nothing is followed by one with half as many processes, down "
              "to N");
}

void WorldOptions::check(std::string_view verb) {
  if (nproc_ > 0 && !gpus_.empty())
    throw ConfigError(cat(verb, ": --nproc is for the CPU, --gpus for GPUs: give one of them"));
  int asked = nproc_;
  if (gpus_ == "all") {
    asked = cuda::device_count();
    if (asked == 0) throw DeviceError(cat("--gpus all: there is none: ", cuda::why_none()));
  } else if (!gpus_.empty()) {
    asked = count_of(gpus_);
    if (asked == 0)
      throw ConfigError(cat(verb, ": --gpus: '", gpus_, "' is neither a number of GPUs nor all"));
  }
  if (min_ranks_ > 0 && max_restarts_ == 0)
    throw ConfigError(cat(verb, ": --min-ranks has no meaning without --max-restarts"));
  if (min_ranks_ > std::max(asked, 1)) {
    throw ConfigError(cat(verb, ": --min-ranks ", min_ranks_, " is more than the ",
                          std::max(asked, 1), " processes to begin with"));
  }
  const dist::World world = dist::world_from_environment();
  if (world.is_distributed() && (asked > 0 || max_restarts_ > 0)) {
    throw ConfigError(cat(verb, ": ", world.launcher, " started this process as rank ", world.rank,
                          " of ", world.size, ": leave out ",
                          nproc_ > 0  ? "--nproc"
                          : asked > 0 ? "--gpus"
                                      : "--max-restarts",
                          ", which would start others, or start it alone"));
  }
  processes_ = asked > 0 ? asked : world.size;
  launches_ = asked > 1 || max_restarts_ > 0;
}

std::string_view WorldOptions::device() const {
  return nproc_ > 0 ? "cpu" : gpus_.empty() ? "" : "cuda";
}

ExitCode WorldOptions::launch(const Launch& launch, Output& out) const {
  dist::LaunchOptions options;
  options.arguments = launch.verb;
  for (const Arguments& some : {without_flags(launch.arguments), launch.added})
    options.arguments.insert(options.arguments.end(), some.begin(), some.end());
  // Given before the verb, it is not among its arguments.
  if (out.json()) options.arguments.insert(options.arguments.begin(), "--json");
  options.processes = processes_;
  options.max_restarts = max_restarts_;
  options.min_processes = min_ranks_;
  if (!gpus_.empty()) options.devices = first_gpus(processes_);
  options.progress = launch.progress;
  options.stop = launch.stop;
  options.capture = out.json();  // of several starts, only the last one's record counts
  const dist::LaunchResult result = dist::launch(options);
  if (!result.output.empty()) {
    out.hand_over(result.output);
  } else if (!result.message.empty()) {
    out.fail(result.code, result.message);
  }
  return result.code;
}

}  // namespace fovea::apps
