// The binary `fovea`. The only place that catches: every failure becomes a line on stderr and the
// exit code of core/error.h.

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <initializer_list>
#include <new>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/text.h"
#include "dist/signal_queue.h"
#include "dist/world.h"
#include "output.h"
#include "train/environment.h"
#include "train/stop_signal.h"
#include "verbs/verbs.h"

namespace fovea::apps {
namespace {

const std::vector<Verb>& verbs() {
  static const std::vector<Verb> table = {
      {"train", "CONFIG [key=value ...]", "train a model; a stopped run resumes to the bit", train,
       true},
      {"eval", "RUN|CHECKPOINT [key=value ...]", "metrics of a checkpoint", eval, true},
      {"sweep", "STUDY [key=value ...]", "train the runs of a study; resumable", sweep, true},
      {"report", "STUDY|RUN ...", "tables over seeds, tests against a baseline, costs", report},
      {"generate", "MODEL [PROMPT]", "continue a text", generate},
      {"tokenize", "--tokenizer T [FILE ...]", "text to token ids, and back", tokenize},
      {"check", "ops|attention ...", "gradient and parity checks of what is registered", check},
      {"list", "attention|tasks|ops|config", "the registries, with options and defaults", list},
      {"inspect", "FILE", "recognise any file fovea reads, and say what is in it", inspect},
      {"data", "prepare|inspect|make|list ...", "prepare, inspect and generate data", data},
      {"bench", "train|op|gemm ...", "how fast this machine trains, beside its limits", bench,
       true},
      {"probe", "RUN [key=value ...]", "what SPA's projection does to a model's attention", probe},
      {"doctor", "", "what this machine has and what is missing", doctor},
  };
  return table;
}

// A message of several lines holds several findings: each becomes a line of its own.
int complain(Output& out, ExitCode code, const std::string& message) {
  std::istringstream findings(message);
  for (std::string line; std::getline(findings, line);) {
    std::fprintf(stderr, "error: %s\n", line.c_str());
  }
  out.fail(code, message);
  return static_cast<int>(code);
}

// Whether the arguments start a training, which answers a stop with its own code.
bool is_training(const Arguments& arguments) {
  const auto any = [&](std::initializer_list<std::string_view> names) {
    return std::any_of(arguments.begin(), arguments.end(), [&](const std::string& argument) {
      const std::string_view name = std::string_view(argument).substr(0, argument.find('='));
      return std::find(names.begin(), names.end(), name) != names.end();
    });
  };
  const auto verb =
      std::find_if(arguments.begin(), arguments.end(),
                   [](const std::string& argument) { return !argument.starts_with("--"); });
  return verb != arguments.end() && *verb == "train" &&
         !any({"--dry-run", "--print-config", "--profile", "--help", "-h"});
}

int run(const Arguments& arguments, Output& out) {
  if (!arguments.empty() && arguments.front() == "--version") {
    out.line(cat("fovea ", train::kVersion));
    out.record().add("version", train::kVersion);
    out.finish(ExitCode::ok);
    return 0;
  }
  const ExitCode code = run_verb("fovea", verbs(), arguments, out);
  out.finish(code);
  return static_cast<int>(code);
}

}  // namespace
}  // namespace fovea::apps

int main(int argc, char** argv) {
  using fovea::ExitCode;
  // A reader of stdout or stderr who goes away must not end a training run.
  std::signal(SIGPIPE, SIG_IGN);
  const std::vector<std::string> arguments(argv + (argc > 0 ? 1 : 0), argv + argc);
  // A stop that is asked for while a run is still being read and checked counts, too.
  std::optional<fovea::train::StopSignal> signal;
  if (fovea::apps::is_training(arguments)) signal.emplace();
  fovea::dist::let_stops_through();
  fovea::apps::Output out(
      std::find(arguments.begin(), arguments.end(), "--json") != arguments.end(),
      !fovea::dist::is_first_rank());
  try {
    return fovea::apps::run(arguments, out);
  } catch (const fovea::Error& error) {
    return fovea::apps::complain(out, error.code(), error.what());
  } catch (const std::bad_alloc&) {
    return fovea::apps::complain(out, ExitCode::out_of_memory, "the machine has no memory left");
  } catch (const std::exception& error) {
    return fovea::apps::complain(out, ExitCode::failed, error.what());
  }
}
