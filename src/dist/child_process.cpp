#include "dist/child_process.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <thread>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/error.h"
#include "core/text.h"
#include "dist/signal_queue.h"

namespace fovea::dist {

namespace {

std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> out;
  out.reserve(words.size() + 1);
  for (const std::string& word : words)
    out.push_back(const_cast<char*>(word.c_str()));
  out.push_back(nullptr);
  return out;
}

// Between fork and exec: async-signal-safe calls only.
struct Prepared {
  const char* program;
  char** arguments;
  char** environment;
  int in, out, err;
  const int* keep;
  std::size_t kept;
  int report;  // takes errno if the program cannot be run
  pid_t parent;
  bool hold_stops;
};

void take_defaults() {
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) {
    struct sigaction action {};
    ::sigaction(number, nullptr, &action);
    if (action.sa_handler != SIG_IGN) ::signal(number, SIG_DFL);
  }
  // In the background, a terminal with `stty tostop` would stop it at its first line.
  ::signal(SIGTTOU, SIG_IGN);
}

[[noreturn]] void become(const Prepared& p) {
  take_defaults();
  if (p.hold_stops) hold_stops_back();
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != p.parent) ::_exit(128 + SIGTERM);  // it ended before prctl
  ::dup2(p.in, STDIN_FILENO);
  if (p.out >= 0) ::dup2(p.out, STDOUT_FILENO);
  if (p.err >= 0) ::dup2(p.err, STDERR_FILENO);
  for (std::size_t i = 0; i < p.kept; ++i)
    ::fcntl(p.keep[i], F_SETFD, 0);
  ::execve(p.program, p.arguments, p.environment);
  const int error = errno;
  [[maybe_unused]] const ssize_t written = ::write(p.report, &error, sizeof error);
  ::_exit(127);
}

// Closed by exec, so that nothing comes out of a program that runs.
int read_report(int descriptor) {
  int error = 0;
  ssize_t count = 0;
  do {
    count = ::read(descriptor, &error, sizeof error);
  } while (count < 0 && errno == EINTR);
  return count == static_cast<ssize_t>(sizeof error) ? error : 0;
}

}  // namespace

std::string text_of(const ExitStatus& status) {
  if (status.signal == 0) return cat("ended with code ", status.code);
  const char* name = ::sigabbrev_np(status.signal);
  return name == nullptr ? cat("was killed by signal ", status.signal)
                         : cat("was killed by signal ", status.signal, " (SIG", name, ")");
}

std::string this_program() {
  // By its name, so that ps shows it; if that was replaced meanwhile, by the link to the old one.
  constexpr const char* kSelf = "/proc/self/exe";
  std::error_code error;
  const std::string path = std::filesystem::read_symlink(kSelf, error).string();
  return !error && std::filesystem::exists(path, error) ? path : kSelf;
}

std::vector<std::string> environment_with(std::vector<std::string> settings) {
  std::vector<std::string> names = {"FOVEA_LISTENER="};
  for (const std::string& setting : settings)
    names.push_back(setting.substr(0, setting.find('=') + 1));
  for (char** entry = ::environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (std::none_of(names.begin(), names.end(),
                     [&](const std::string& name) { return text.starts_with(name); }))
      settings.emplace_back(text);
  }
  return settings;
}

ChildProcess::ChildProcess(const ChildOptions& options) {
  const std::vector<char*> arguments = pointers(options.arguments);
  const std::vector<char*> environment = pointers(options.environment);
  int report[2];
  if (::pipe2(report, O_CLOEXEC) != 0)
    throw IoError(cat("no pipe for a process: ", std::strerror(errno)));
  const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  const Prepared prepared{options.program.c_str(),
                          const_cast<char**>(arguments.data()),
                          const_cast<char**>(environment.data()),
                          nothing,
                          options.out,
                          options.err,
                          options.keep.data(),
                          options.keep.size(),
                          report[1],
                          ::getpid(),
                          options.hold_stops};
  pid_ = ::fork();
  if (pid_ == 0) become(prepared);
  int error = pid_ < 0 ? errno : 0;
  ::close(report[1]);
  ::close(nothing);
  if (error == 0) error = read_report(report[0]);
  ::close(report[0]);
  if (error == 0) return;
  if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
  throw IoError(cat(options.program, ": cannot be started: ", std::strerror(error)));
}

ChildProcess::~ChildProcess() {
  if (status()) return;
  send(SIGKILL);
  // One that hangs in the kernel does not go for a signal: it must not hold up everything else.
  for (int i = 0; i < 100 && !status(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

std::optional<ExitStatus> ChildProcess::status() {
  if (status_) return status_;
  int raw = 0;
  const pid_t ended = ::waitpid(pid_, &raw, WNOHANG);
  if (ended == 0 || (ended < 0 && errno != ECHILD)) return std::nullopt;
  status_ = ended < 0          ? ExitStatus{1, 0}  // waited for by somebody else
            : WIFSIGNALED(raw) ? ExitStatus{0, WTERMSIG(raw)}
                               : ExitStatus{WEXITSTATUS(raw), 0};
  return status_;
}

void ChildProcess::send(int signal) {
  // Its group first: it holds a wrapper's children too, and is gone with the last of them.
  if (!status_ && ::kill(-pid_, signal) != 0) ::kill(pid_, signal);
}

}  // namespace fovea::dist
