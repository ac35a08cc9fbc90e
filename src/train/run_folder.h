#pragma once
// runs/<name>/: who may write in it, and where things stand.
//   config.yaml, overrides.txt, environment.json    what was asked for, and where it ran
//   status.json                                     how far it is; replaced as a whole
//   metrics.jsonl, perf.jsonl                       what the run computed; clocks, speed, memory
//   logs/rank_0000.log                              one a process
//   ckpt/step_00001000/                             checkpoints; ckpt/latest is a symbolic link to
//   the newest

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fovea::train {

struct CheckpointName {
  std::int64_t step = 0;
  std::string path;
};

class RunFolder {
 public:
  // Makes the folder if need be and locks it: two runs never share one. The lock ends with the
  // process, however it ends. Throws ConfigError if another process holds it, IoError if it cannot
  // be written. `owner` false: of a rank that leaves writing to rank 0, which holds the lock.
  explicit RunFolder(const std::string& path, bool owner = true);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string file(std::string_view name) const;
  std::string checkpoint(std::int64_t step) const;
  std::string log_of(int rank) const;  // logs/rank_0003.log
  // Throws IoError if the folder is not the one any more that this run locked: somebody removed,
  // moved or replaced it, and what is written now would be lost. Of the owner.
  void require_there() const;
  // Removes what a save that failed left under temporary names; for the end of a run that failed.
  // Of the owner. Other ranks may still be about to write, so it looks more than once.
  void clear_up() const noexcept;
  // Replaces a file as a whole. Throws IoError, also for require_there().
  void write(std::string_view name, std::string_view text) const;

  // Points ckpt/latest at the checkpoint of that step.
  void set_latest(std::int64_t step) const;
  // Keeps the newest `keep_last` checkpoints, those of steps that `keep_every` divides (0: none),
  // and that of `best_step` (-1: none); deletes the others.
  void prune(std::int64_t keep_last, std::int64_t keep_every, std::int64_t best_step) const;
  // Renames the checkpoints beyond `step` to discarded_step_...: they belong to a continuation that
  // this run gives up by starting from an older one. Returns how many.
  int discard_beyond(std::int64_t step) const;

 private:
  std::string path_;
  int lock_ = -1;
};

// The checkpoints in a run folder, oldest first; whether they are whole is not looked at.
std::vector<CheckpointName> checkpoints_in(const std::string& run_folder);
// Whether a process trains in the folder, which need not exist. Throws IoError if nobody may tell.
bool is_in_use(const std::string& run_folder);
// step_00001000
std::string checkpoint_name(std::int64_t step);

}  // namespace fovea::train
