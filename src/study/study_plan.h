#pragma once
// From a study's file to the configurations of its runs, all checked before any of them starts.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "study/study_file.h"
#include "train/run_config.h"

namespace fovea::study {

struct PlannedRun {
  std::size_t cell = 0;
  std::int64_t seed = 0;
  // 16 hexadecimal digits over the resolved configuration, as far as results depend on it
  // (RunConfig::result_hash() and train.max_time).
  std::string id;
  std::string folder;       // a name that says what it is: "standard-seed1-8a3f..."
  train::RunConfig config;  // its out_dir is not set yet
};

// The runs of a study, seed by seed, so that an interrupted one has as many pairs as possible.
// `assignments`: key=value, for every run, in place of what the file says. Throws ConfigError with
// all that is wrong in any configuration, and for two cells whose runs would be the same.
std::vector<PlannedRun> plan_runs(const StudyFile& study, std::span<const std::string> assignments);

struct PlannedStudy {
  StudyFile study;
  std::vector<PlannedRun> runs;
};
// Reads the file and plans its runs. Throws ConfigError with all that is wrong in the file, and in
// the configurations as far as the file can be understood.
PlannedStudy plan_study(const std::string& path, std::span<const std::string> assignments);

// "4 cells x 3 seeds".
std::string extent_of(const StudyFile& study);

// Builds each cell's model and reads its data without computing anything (train/dry_run.h): what a
// method refuses and data that is missing is found here. Throws Error with all of it; its code is
// that of the first. Then ConfigError for metrics that no run reports; where that is not known
// beforehand, a warning.
void check_runs(const StudyFile& study, std::span<const PlannedRun> runs);

}  // namespace fovea::study
