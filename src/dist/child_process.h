#pragma once
// A program run as a child of this process, in a process group of its own.

#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

namespace fovea::dist {

struct ExitStatus {
  int code = 0;
  int signal = 0;  // that killed it, or 0
};
// "ended with code 3", "was killed by signal 9 (SIGKILL)"
std::string text_of(const ExitStatus& status);

struct ChildOptions {
  std::string program;                   // a path
  std::vector<std::string> arguments;    // with the program's name
  std::vector<std::string> environment;  // NAME=value, all of it
  // Descriptors that become the child's stdout and stderr; -1: this process's.
  int out = -1, err = -1;
  std::vector<int> keep;  // descriptors that stay open in the child, under their numbers
  // Stop signals wait until the program lets them through, which it has to do.
  bool hold_stops = false;
};

// The path of the binary that runs.
std::string this_program();
// This process's environment with `settings` (NAME=value) in place of what it says of the same
// names, and without the socket that a launcher handed to this process alone.
std::vector<std::string> environment_with(std::vector<std::string> settings);

class ChildProcess {
 public:
  // Returns when the program runs, with an empty stdin and default signal handlers. It gets SIGTERM
  // when the thread that started it ends. Throws IoError.
  explicit ChildProcess(const ChildOptions& options);
  // Kills it if it still runs, with all of its process group.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  // How it ended; nothing while it runs.
  std::optional<ExitStatus> status();
  // To the process and its group, while it runs.
  void send(int signal);

 private:
  pid_t pid_ = -1;
  std::optional<ExitStatus> status_;
};

}  // namespace fovea::dist
