// fovea train: from a config file to a run folder.

#include "train/train.h"

#include <string>
#include <vector>

#include "command_line.h"
#include "config/yaml.h"
#include "core/log.h"
#include "core/text.h"
#include "train/dry_run.h"
#include "train/profile.h"
#include "train/run_config.h"
#include "verbs/verbs.h"

namespace fovea::apps {

ExitCode train(const Arguments& arguments, Output& out) {
  std::string path;
  std::vector<std::string> overrides;
  bool dry_run = false, print_config = false;
  int threads = 0, profiled = 0;
  train::TrainOptions options;
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
      .option("--threads", threads, 1, "CPU threads (train.threads); results do not depend on it");
  if (!line.parse(arguments, out)) return ExitCode::ok;
  require_assignments("train", overrides);
  if (threads > 0) overrides.push_back(cat("train.threads=", threads));

  config::Node node = config::load(path);
  config::override_with(node, overrides);
  const train::RunConfig run = train::RunConfig::from(node);
  if (!run.unused.empty()) {
    log::warn(cat(path, ": data.kind ", run.data.kind, " does not use ", join(run.unused, ", ")));
  }
  if (print_config) {
    out.line(run.resolved.yaml());
    out.record().raw("config", run.resolved.json());
    return ExitCode::ok;
  }
  if (dry_run) {
    const train::DryRun prediction = train::dry_run(run);
    out.line(train::dry_run_text(prediction));
    out.record().raw("prediction", train::dry_run_json(prediction));
    return ExitCode::ok;
  }
  if (profiled > 0) {
    const train::Profile profile = train::profile(run, profiled);
    out.line(train::profile_text(profile));
    out.line(cat("wrote ", profile.table, " and ", profile.trace));
    out.record().raw("profile", train::profile_json(profile));
    return ExitCode::ok;
  }
  options.overrides = overrides;
  const train::TrainResult result = train::train(run, options);

  train::JsonObject metrics;
  for (const auto& [name, value] : result.metrics)
    metrics.add(name, value);
  out.record().add("ending", train::name_of(result.ending)).add("step", result.step);
  out.record().add("max_steps", result.max_steps).add("folder", result.folder);
  out.record().add("checkpoint", result.checkpoint).raw("metrics", metrics.str());
  return result.ending == train::Ending::signal ? ExitCode::stopped : ExitCode::ok;
}

}  // namespace fovea::apps
