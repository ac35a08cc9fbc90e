// fovea train: from a config file to a run folder.

#include "train/train.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "command_line.h"
#include "config/yaml.h"
#include "core/log.h"
#include "core/text.h"
#include "train/dry_run.h"
#include "train/micro_batch.h"
#include "train/profile.h"
#include "train/ranks.h"
#include "train/run_config.h"
#include "train/run_status.h"
#include "train/stop_signal.h"
#include "train/this_machine.h"
#include "verbs/verbs.h"
#include "world_options.h"

namespace fovea::apps {

namespace {

struct TrainArguments {
  std::string path;
  std::vector<std::string> overrides;
  bool dry_run = false, print_config = false;
  int profiled = 0;
  train::TrainOptions options;
  WorldOptions world;

  // False: --help was all.
  bool parse(const Arguments& arguments, Output& out) {
    int threads = 0;
    CommandLine line(
        "train",
        "Trains a model as CONFIG says. A run that was stopped (exit code 75) or killed goes "
        "on where its last checkpoint stands when it is started again.");
    line.required("CONFIG", path, "a YAML file; configs/ has some to start from")
        .rest("key=value", overrides,
              "settings that replace the file's; fovea list config explains them")
        .flag("--dry-run", dry_run, "check everything and predict memory; train nothing")
        .flag("--print-config", print_config, "print every setting as it would be used, and stop")
        .flag("--memory", options.memory, "print the memory of each op at the end")
        .option("--profile", profiled, 1,
                "record the kernels of N steps on the GPU, write a table and a trace into the run "
                "folder, and stop")
        .option("--threads", threads, 1,
                "CPU threads (train.threads); results do not depend on it");
    world.declare(line);
    world.declare_restarts(line);
    if (!line.parse(arguments, out)) return false;
    require_assignments("train", overrides);
    world.check("fovea train");
    if (profiled > 0 && world.processes() > 1)
      throw ConfigError("fovea train: --profile records one process: leave out the others");
    if (threads > 0) overrides.push_back(cat("train.threads=", threads));
    return true;
  }
};

// What the flags of several processes imply for train.device, as key=value; "" for nothing.
std::string implied_device(const WorldOptions& world, const config::Node& node) {
  const config::Node* given = node.find("train.device");
  const std::string choice = given != nullptr ? given->text() : "auto";
  if (world.device() == "cuda" && choice == "cpu")
    throw ConfigError(cat(given->place().str(), ": train.device is cpu, but --gpus asks for GPUs"));
  if (world.device().empty() || choice != "auto") return {};
  return cat("train.device=", world.device());
}

std::int64_t newest_checkpoint(const std::string& run_folder) {
  const std::optional<train::RunStatus> status = train::read_status(run_folder);
  return status ? status->checkpoint_step : -1;
}

ExitCode dry_run(const train::RunConfig& run, int ranks, Output& out) {
  const train::DryRun prediction =
      train::dry_run(train::with_fitting_micro_batch(run, ranks), ranks);
  out.line(train::dry_run_text(prediction));
  out.record().raw("prediction", train::dry_run_json(prediction));
  return ExitCode::ok;
}

ExitCode profile(const train::RunConfig& run, int steps, Output& out) {
  const train::Profile profile = train::profile(train::with_fitting_micro_batch(run, 1), steps);
  out.line(train::profile_text(profile));
  out.line(cat("wrote ", profile.table, " and ", profile.trace));
  out.record().raw("profile", train::profile_json(profile));
  return ExitCode::ok;
}

ExitCode train_here(const train::RunConfig& run, const train::TrainOptions& options, Output& out) {
  const train::TrainResult result = train::train(run, options);
  train::JsonObject metrics;
  for (const auto& [name, value] : result.metrics)
    metrics.add(name, value);
  out.record().add("ending", train::name_of(result.ending)).add("step", result.step);
  out.record().add("max_steps", result.max_steps).add("folder", result.folder);
  out.record().add("checkpoint", result.checkpoint).raw("metrics", metrics.str());
  return result.ending == train::Ending::signal ? ExitCode::stopped : ExitCode::ok;
}

}  // namespace

ExitCode train(const Arguments& arguments, Output& out) {
  TrainArguments asked;
  if (!asked.parse(arguments, out)) return ExitCode::ok;
  config::Node node = config::load(asked.path);
  config::override_with(node, asked.overrides);
  Arguments implied;
  if (const std::string device = implied_device(asked.world, node); !device.empty()) {
    implied = {device};
    config::override_with(node, implied);
    asked.overrides.push_back(device);
  }
  const train::RunConfig run = train::RunConfig::from(node);
  if (!run.unused.empty() && !asked.world.launches()) {
    log::warn(
        cat(asked.path, ": data.kind ", run.data.kind, " does not use ", join(run.unused, ", ")));
  }
  if (asked.print_config) {
    out.line(run.resolved.yaml());
    out.record().raw("config", run.resolved.json());
    return ExitCode::ok;
  }
  if (asked.dry_run) return dry_run(run, asked.world.processes(), out);
  if (asked.profiled > 0) return profile(run, asked.profiled, out);
  if (asked.world.launches()) {
    // A mistake is told once, not by every process and at every restart.
    train::for_ranks(run, asked.world.processes());
    if (asked.world.device() != "cuda") train::device_of(run.train);  // --gpus has its own words
    const train::StopSignal signal;
    return asked.world.launch({{"train"},
                               arguments,
                               implied,
                               [&] { return newest_checkpoint(run.out_dir); },
                               [&] { return signal.requested(); }},
                              out);
  }
  asked.options.overrides = asked.overrides;
  return train_here(run, asked.options, out);
}

}  // namespace fovea::apps
