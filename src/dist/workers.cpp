#include "dist/workers.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "core/text.h"
#include "dist/loopback_listener.h"

namespace fovea::dist {

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::size_t kKeptBytes = 16'384, kKeptLines = 20;  // of a rank's stderr
// Equal signals so close are one wish: timeout(1) signals its child, and then the group it is in.
constexpr milliseconds kOneWish{1'000};
constexpr milliseconds kAtOnce{2'000};       // between a second signal and the end of all
constexpr milliseconds kUnkillable{30'000};  // for a killed process that hangs in the kernel
constexpr int kLongestWait = 1'000;  // ms; a process may have been started with SIGCHLD blocked

// A pipe's writing end, for as long as a process is being started with it.
struct WriteEnd {
  int descriptor = -1;
  ~WriteEnd() {
    if (descriptor >= 0) ::close(descriptor);
  }
};

// Returns the reading end, which does not block.
int open_pipe(WriteEnd& end) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    throw IoError(cat("no pipe for a process: ", std::strerror(errno)));
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  end.descriptor = ends[1];
  return ends[0];
}

// Appends what is there; false once nothing will come any more.
bool read_some(int descriptor, std::string& to) {
  std::array<char, 4096> buffer{};
  while (true) {
    const ssize_t count = ::read(descriptor, buffer.data(), buffer.size());
    if (count > 0) {
      to.append(buffer.data(), static_cast<std::size_t>(count));
    } else if (count == 0 || errno != EINTR) {
      return count < 0 && errno == EAGAIN;
    }
  }
}

std::string last_lines(const std::string& text) {
  std::size_t begin = text.size();
  for (std::size_t lines = 0; begin > 0; --begin) {
    if (text[begin - 1] == '\n' && begin != text.size() && ++lines == kKeptLines) break;
  }
  return text.substr(begin);
}

bool is_good(const ExitStatus& status) {
  return status.signal == 0 && (status.code == static_cast<int>(ExitCode::ok) ||
                                status.code == static_cast<int>(ExitCode::stopped));
}

// One that ended because another did.
bool is_echo(const ExitStatus& status) {
  return status.signal == 0 && status.code == static_cast<int>(ExitCode::communication);
}

}  // namespace

Workers::Workers(const LaunchOptions& options, int processes,
                 const std::vector<std::string>& devices)
    : options_(options), workers_(static_cast<std::size_t>(processes)) {
  const LoopbackListener meeting;
  WriteEnd verdict;
  verdict_pipe_ = open_pipe(verdict);
  ::fcntl(verdict.descriptor, F_SETFL, O_NONBLOCK);
  std::vector<std::string> common = {
      cat("FOVEA_WORLD_SIZE=", processes), cat("FOVEA_LOCAL_SIZE=", processes),
      cat("FOVEA_RENDEZVOUS=", meeting.address()), cat("FOVEA_TOKEN=", meeting.token()),
      cat("FOVEA_VERDICT=", verdict.descriptor)};
  if (!devices.empty()) common.push_back(cat("CUDA_VISIBLE_DEVICES=", join(devices, ",")));
  try {
    for (int rank = 0; rank < processes; ++rank) {
      std::vector<std::string> own = common;
      own.push_back(cat("FOVEA_RANK=", rank));
      own.push_back(cat("FOVEA_LOCAL_RANK=", rank));
      std::vector<int> keep = {verdict.descriptor};
      if (rank == 0) {
        own.push_back(cat("FOVEA_LISTENER=", meeting.descriptor()));
        keep.push_back(meeting.descriptor());
      }
      start(rank, own, keep);
    }
  } catch (const Error&) {
    close_pipes();
    throw;
  }
}

Workers::~Workers() {
  close_pipes();
}

void Workers::close_pipes() {
  if (verdict_pipe_ >= 0) ::close(verdict_pipe_);
  verdict_pipe_ = -1;
  for (Worker& worker : workers_) {
    for (int* descriptor : {&worker.out, &worker.err}) {
      if (*descriptor >= 0) ::close(*descriptor);
      *descriptor = -1;
    }
  }
}

void Workers::start(int rank, const std::vector<std::string>& settings, std::vector<int> keep) {
  Worker& worker = workers_[static_cast<std::size_t>(rank)];
  ChildOptions child;
  child.program = options_.program.empty() ? this_program() : options_.program;
  child.arguments = {child.program};
  child.arguments.insert(child.arguments.end(), options_.arguments.begin(),
                         options_.arguments.end());
  child.environment = environment_with(settings);
  child.keep = std::move(keep);
  child.hold_stops = options_.program.empty();  // main() lets them through
  WriteEnd out, err;
  if (rank > 0) {
    out.descriptor = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
    worker.err = open_pipe(err);
  } else if (options_.capture) {
    worker.out = open_pipe(out);
  }
  child.out = out.descriptor;
  child.err = err.descriptor;
  worker.process = std::make_unique<ChildProcess>(child);
}

std::vector<pid_t> Workers::pids() const {
  std::vector<pid_t> out;
  for (const Worker& worker : workers_)
    out.push_back(worker.process->pid());
  return out;
}

WorkersEnd Workers::wait(SignalQueue& signals) {
  while (reap() > 0 && pressure_ != Pressure::given_up) {
    watch(signals);
    drain();
    hand_on(signals.take());
    if (deadline_ && steady_clock::now() >= *deadline_) press();
  }
  drain();
  return result();
}

void Workers::watch(const SignalQueue& signals) {
  std::vector<pollfd> sources = {{signals.descriptor(), POLLIN, 0}, {verdict_pipe_, POLLIN, 0}};
  for (const Worker& worker : workers_) {
    if (worker.out >= 0) sources.push_back({worker.out, POLLIN, 0});
    if (worker.err >= 0) sources.push_back({worker.err, POLLIN, 0});
  }
  std::int64_t wait = kLongestWait;
  if (deadline_) {
    const auto left = std::chrono::ceil<milliseconds>(*deadline_ - steady_clock::now()).count();
    wait = std::clamp<std::int64_t>(left, 0, kLongestWait);
  }
  ::poll(sources.data(), sources.size(), static_cast<int>(wait));
}

void Workers::drain() {
  if (verdict_pipe_ >= 0 && !read_some(verdict_pipe_, verdict_text_)) {
    ::close(verdict_pipe_);
    verdict_pipe_ = -1;
  }
  for (Verdict& verdict : take_verdicts(verdict_text_))
    verdicts_.push_back(std::move(verdict));
  for (Worker& worker : workers_) {
    if (worker.out >= 0 && !read_some(worker.out, worker.out_text)) {
      ::close(worker.out);
      worker.out = -1;
    }
    if (worker.err < 0) continue;
    const bool open = read_some(worker.err, worker.err_text);
    if (worker.err_text.size() > 2 * kKeptBytes)
      worker.err_text.erase(0, worker.err_text.size() - kKeptBytes);
    if (open) continue;
    ::close(worker.err);
    worker.err = -1;
  }
}

void Workers::hand_on(const std::vector<int>& stops) {
  for (const int signal : stops) {
    const auto now = steady_clock::now();
    if (stops_ > 0 && signal == stop_signal_ && now - stopped_at_ < kOneWish) continue;
    ++stops_;
    stopped_at_ = now;
    stop_signal_ = signal;
    send(signal);
  }
  if (stops_ < 2 || stops.empty() || pressure_ >= Pressure::asked) return;
  pressure_ = Pressure::asked;
  deadline_ = steady_clock::now() + kAtOnce;
}

void Workers::send(int signal) {
  for (Worker& worker : workers_)
    worker.process->send(signal);
}

int Workers::reap() {
  int left = 0;
  for (std::size_t rank = 0; rank < workers_.size(); ++rank) {
    Worker& worker = workers_[rank];
    if (worker.ended) continue;
    const std::optional<ExitStatus> status = worker.process->status();
    if (!status) {
      ++left;
      continue;
    }
    worker.ended = true;
    worker.had_to_be_killed = pressure_ >= Pressure::killed;
    if (pressure_ >= Pressure::asked) continue;
    ended_.push_back(rank);
    if (is_good(*status) || pressure_ != Pressure::none) continue;
    pressure_ = Pressure::grace;
    deadline_ = steady_clock::now() + options_.grace;
  }
  return left;
}

void Workers::press() {
  switch (pressure_) {
    case Pressure::none:
      break;
    case Pressure::grace:
      send(SIGTERM);
      pressure_ = Pressure::asked;
      deadline_ = steady_clock::now() + options_.until_killed;
      break;
    case Pressure::asked:
      send(SIGKILL);
      pressure_ = Pressure::killed;
      deadline_ = steady_clock::now() + kUnkillable;
      break;
    case Pressure::killed:
    case Pressure::given_up:
      pressure_ = Pressure::given_up;
      break;
  }
}

std::string Workers::name_of(std::size_t rank) const {
  return cat("rank ", rank, " (pid ", workers_[rank].process->pid(), ")");
}

std::optional<std::size_t> Workers::first_failure() const {
  std::optional<std::size_t> first;
  for (const std::size_t rank : ended_) {
    const ExitStatus status = *workers_[rank].process->status();
    if (is_good(status)) continue;
    // A killed process leaves its sockets before it is seen to have ended: the others may be
    // faster.
    if (!is_echo(status)) return rank;
    if (!first) first = rank;
  }
  return first;
}

// Those that had to be killed, but for one.
std::string Workers::unwilling(std::size_t but) const {
  std::string out;
  for (std::size_t rank = 0; rank < workers_.size(); ++rank) {
    if (rank != but && !reaction_of(rank).empty())
      out += cat("; ", name_of(rank), reaction_of(rank));
  }
  return out;
}

std::string Workers::reaction_of(std::size_t rank) const {
  const Worker& worker = workers_[rank];
  if (!worker.process->status()) return " cannot be killed";
  return worker.had_to_be_killed ? " did not react and was killed" : "";
}

WorkersEnd Workers::result() const {
  WorkersEnd end;
  end.stop_asked = stops_ > 0;
  end.output = workers_.front().out_text;
  bool all_good = true, saved = false;
  for (const Worker& worker : workers_) {
    const std::optional<ExitStatus> status = worker.process->status();
    all_good = all_good && status && is_good(*status);
    saved = saved || (status && status->code == static_cast<int>(ExitCode::stopped));
  }
  if (all_good) {
    end.code = saved ? ExitCode::stopped : ExitCode::ok;
    return end;
  }
  const std::optional<std::size_t> first = first_failure();
  if (stops_ >= 2 || !first) {
    end.code = static_cast<ExitCode>(128 + stop_signal_);
    end.message = cat("ended at once by a second signal (SIG", ::sigabbrev_np(stop_signal_), ")");
    return end;
  }
  explain(end, *first);
  return end;
}

// The ranks know better than the order in which they ended.
void Workers::explain(WorkersEnd& end, std::size_t first) const {
  const Verdict* const verdict = verdicts_.empty() ? nullptr : &verdicts_.front();
  const bool is_named = verdict != nullptr && verdict->culprit >= 0 &&
                        verdict->culprit < static_cast<int>(workers_.size());
  const std::size_t failed = is_named ? static_cast<std::size_t>(verdict->culprit) : first;
  const bool by_itself = std::find(ended_.begin(), ended_.end(), failed) != ended_.end();
  const ExitStatus status = by_itself ? *workers_[failed].process->status() : ExitStatus{};
  // Asked to stop before it listened: no peer's failure.
  const bool unready = stops_ > 0 && status.signal == stop_signal_;
  end.failed = end.suspect = static_cast<int>(failed);
  end.code = unready              ? static_cast<ExitCode>(128 + status.signal)
             : status.signal != 0 ? ExitCode::communication
             : status.code != 0   ? static_cast<ExitCode>(status.code)
                                  : verdict->code;
  end.message = cat(name_of(failed), by_itself ? " " + text_of(status) : reaction_of(failed));
  if (verdict != nullptr) end.message += ": " + words_of(failed, *verdict);
  end.message += unwilling(failed);
  end.words = last_lines(workers_[failed].err_text);
  bool stuck = false;
  for (std::size_t rank = 0; rank < workers_.size(); ++rank) {
    stuck = stuck || !workers_[rank].process->status();
    const bool hung = !is_named && workers_[rank].had_to_be_killed && is_echo(status);
    if (hung) end.suspect = static_cast<int>(rank);
  }
  end.may_pass = !stuck && (end.code == ExitCode::communication || end.code == ExitCode::device);
  end.no_device = end.code == ExitCode::device && verdict != nullptr && verdict->before_start;
}

// Its own, if it had any.
std::string Workers::words_of(std::size_t failed, const Verdict& otherwise) const {
  for (const Verdict& verdict : verdicts_) {
    if (verdict.by == static_cast<int>(failed) && verdict.culprit == verdict.by)
      return verdict.message;
  }
  return otherwise.message;
}

}  // namespace fovea::dist
