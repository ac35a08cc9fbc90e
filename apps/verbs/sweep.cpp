// fovea sweep: the runs of a study.

#include "study/sweep.h"

#include <string>
#include <vector>

#include "command_line.h"
#include "core/text.h"
#include "dist/world.h"
#include "train/trainer.h"
#include "verbs/verbs.h"
#include "world_options.h"

namespace fovea::apps {

namespace {

void print_plan(const study::StudyFile& study, const std::vector<study::PlannedRun>& runs,
                Output& out) {
  std::vector<std::string> records;
  for (const study::PlannedRun& run : runs) {
    const std::string& cell = study.cells[run.cell].name;
    out.line(cat(run.id, "  ", cell, " seed ", run.seed));
    records.push_back(train::JsonObject()
                          .add("id", run.id)
                          .add("cell", cell)
                          .add("seed", run.seed)
                          .raw("config", run.config.resolved.json())
                          .str());
  }
  out.line(cat(study::extent_of(study), ": ", runs.size(),
               " runs, all of them sound; nothing was started"));
  out.record().add("study", study.layout.study).raw("runs", cat("[", join(records, ","), "]"));
}

void record(const study::StudyFile& study, const study::SweepEnd& end, Output& out) {
  std::vector<std::string> failed;
  for (const study::FailedRun& run : end.failed) {
    failed.push_back(train::JsonObject()
                         .add("cell", run.cell)
                         .add("seed", run.seed)
                         .add("code", run.code)
                         .add("message", run.message)
                         .add("folder", run.folder)
                         .str());
  }
  out.record().add("study", study.layout.study).add("folder", study.out_dir);
  out.record().add("finished", end.finished).add("unfinished", end.unfinished);
  out.record().raw("failed", cat("[", join(failed, ","), "]"));
}

}  // namespace

ExitCode sweep(const Arguments& arguments, Output& out) {
  std::string path;
  std::vector<std::string> assignments;
  int jobs = 0;
  bool dry_run = false;
  CommandLine line("sweep",
                   "Trains the runs of a study: a configuration, what is varied in it, and seeds. "
                   "Every run is checked before the first one starts. Started again after any stop "
                   "it goes on: runs that finished stay, others resume, failed ones are tried "
                   "again. docs/studies.md explains the file.");
  line.required("STUDY", path, "a YAML file; configs/studies/ has one to start from")
      .rest("key=value", assignments,
            "settings of every run, in place of the configuration's, such as data.path")
      .option("--jobs", jobs, 1, "runs at a time (default: the study's jobs)")
      .flag("--dry-run", dry_run, "check everything and list the runs; start nothing");
  if (!line.parse(arguments, out)) return ExitCode::ok;
  require_assignments("sweep", assignments);
  if (const dist::World world = dist::world_from_environment(); world.is_distributed()) {
    throw ConfigError(cat("fovea sweep: ", world.launcher, " started this process as rank ",
                          world.rank, " of ", world.size,
                          ", but a sweep is one process: start it "
                          "alone"));
  }
  auto [study, runs] = study::plan_study(path, assignments);
  study::check_runs(study, runs);
  if (dry_run) {
    print_plan(study, runs, out);
    return ExitCode::ok;
  }
  study::SweepOptions options;
  options.jobs = jobs > 0 ? jobs : study.jobs;
  options.threads = train::threads_of({});
  options.devices = all_gpus();
  const study::SweepEnd end = study::sweep(study, runs, options);
  out.line(cat(study.layout.study, ": ", end.finished, " of ", runs.size(), " runs have finished",
               end.failed.empty() ? "" : cat(", ", end.failed.size(), " failed"), "; fovea report ",
               study.out_dir, " shows them"));
  record(study, end, out);
  return end.code;
}

}  // namespace fovea::apps
