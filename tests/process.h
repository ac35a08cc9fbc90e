#pragma once
// Runs the built binary, or any program, as a user would, and keeps what it said.

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

namespace fovea::test {

struct Finished {
  int code = -1;  // exit code, or 128 + signal
  std::string out, err;
};

// Called once, with the process id, as soon as stderr contains `text`.
struct When {
  std::string text;
  std::function<void(pid_t)> act;
};

namespace process_detail {

// Appends what can be read now; false at the end of the stream.
inline bool drain(int descriptor, std::string& to) {
  char buffer[4096];
  const ssize_t count = ::read(descriptor, buffer, sizeof buffer);
  if (count > 0) to.append(buffer, static_cast<std::size_t>(count));
  return count > 0 || (count < 0 && errno == EINTR);
}

[[noreturn]] inline void become(const std::vector<std::string>& command, int out, int err) {
  ::dup2(::open("/dev/null", O_RDONLY), 0);
  ::dup2(out, 1);
  ::dup2(err, 2);
  std::vector<char*> argv;
  for (const std::string& word : command)
    argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  ::execvp(argv[0], argv.data());
  ::_exit(127);
}

}  // namespace process_detail

inline Finished run_program(const std::vector<std::string>& command, const When& when = {}) {
  using namespace process_detail;
  int out[2], err[2];
  if (::pipe2(out, O_CLOEXEC) != 0 || ::pipe2(err, O_CLOEXEC) != 0)
    throw std::runtime_error("no pipes");
  const pid_t child = ::fork();
  if (child == 0) become(command, out[1], err[1]);
  ::close(out[1]);
  ::close(err[1]);
  Finished finished;
  bool acted = false;
  pollfd both[2] = {{out[0], POLLIN, 0}, {err[0], POLLIN, 0}};
  while (both[0].fd >= 0 || both[1].fd >= 0) {
    if (::poll(both, 2, -1) < 0 && errno != EINTR) break;
    if (both[0].revents != 0 && !drain(out[0], finished.out)) both[0].fd = -1;
    if (both[1].revents != 0 && !drain(err[0], finished.err)) both[1].fd = -1;
    if (when.act && !acted && finished.err.find(when.text) != std::string::npos) {
      acted = true;
      when.act(child);
    }
  }
  ::close(out[0]);
  ::close(err[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  finished.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return finished;
}

#ifdef FOVEA_BINARY
inline Finished run_fovea(std::vector<std::string> arguments, const When& when = {}) {
  arguments.insert(arguments.begin(), FOVEA_BINARY);
  return run_program(arguments, when);
}
#endif

// All bytes of a file; "" if there is none.
inline std::string file_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace fovea::test
