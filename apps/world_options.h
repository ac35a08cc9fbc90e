#pragma once
// The flags of a verb that runs as several processes, and starting these: --nproc, --gpus,
// --max-restarts, --min-ranks.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "command_line.h"
#include "verb.h"

namespace fovea::apps {

// The GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them; none of a single one.
std::vector<std::string> all_gpus();

class WorldOptions {
 public:
  // --nproc and --gpus; the object must outlive the parsing.
  void declare(CommandLine& line);
  // --max-restarts and --min-ranks, for a verb that goes on where its last checkpoint stands.
  void declare_restarts(CommandLine& line);

  // After the parsing. Throws ConfigError where they contradict each other, or the environment of
  // torchrun, srun or mpirun; DeviceError for --gpus all without a GPU. `verb`: "fovea train".
  void check(std::string_view verb);

  // The processes that work together: those asked for, those of the environment, or 1.
  int processes() const { return processes_; }
  // What the flags say of the device: "cpu", "cuda", or "" for nothing.
  std::string_view device() const;
  // Whether this process is to start others, and leave the work to them.
  bool launches() const { return launches_; }

  struct Launch {
    std::vector<std::string> verb;           // {"train"}, {"bench", "train"}
    Arguments arguments;                     // of the verb, as they were given
    Arguments added;                         // for the processes, behind those
    std::function<std::int64_t()> progress;  // dist/launcher.h
    std::function<bool()> stop;              // the same
  };
  // Runs the verb in each of the processes; their rank 0 speaks for them all. Throws DeviceError if
  // there are fewer GPUs than asked for, IoError.
  ExitCode launch(const Launch& launch, Output& out) const;

 private:
  int nproc_ = 0, max_restarts_ = 0, min_ranks_ = 0;
  std::string gpus_;
  int processes_ = 1;
  bool launches_ = false;
};

}  // namespace fovea::apps
