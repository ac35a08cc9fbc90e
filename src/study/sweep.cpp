#include "study/sweep.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <thread>

#include <poll.h>

#include "core/log.h"
#include "core/text.h"
#include "data/folder_lock.h"
#include "dist/signal_queue.h"
#include "study/ledger.h"
#include "study/sweep_child.h"
#include "train/run_folder.h"
#include "train/run_log.h"
#include "train/run_status.h"

namespace fovea::study {

namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kTick{250};                // between looks at folders that others hold
constexpr milliseconds kAtOnce{2'000};            // between a second signal and the end of all
constexpr milliseconds kBetweenReports{300'000};  // at most
constexpr std::size_t kShownMetrics = 3;          // behind them come counts

void make_folders(const std::string& folder) {
  try {
    for (const char* name : {"configs", "logs", "runs"})
      fs::create_directories(cat(folder, "/", name));
  } catch (const fs::filesystem_error& e) {
    throw IoError(cat(folder, ": the study's folder cannot be written: ", e.code().message(),
                      "; choose another out_dir"));
  }
}

std::string rounded(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.5g", value);
  return text;
}

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

class Sweep {
 public:
  Sweep(const StudyFile& study, std::span<PlannedRun> runs, const SweepOptions& options)
      : study_(study),
        runs_(runs),
        options_(options),
        lock_(cat(study.out_dir, "/.lock"),
              cat(study.out_dir,
                  ": another sweep runs in this folder: wait for it, or give the "
                  "study an out_dir of its own")),
        ledger_(study.out_dir, study, runs),
        slots_(static_cast<std::size_t>(options.jobs)) {
    take_stock();
  }

  SweepEnd run() {
    greet();
    milliseconds between = options_.between_reports;
    auto next_report = steady_clock::now() + between;
    try {
      while (!finished()) {
        if (stops_ == 0) start_what_fits();
        pollfd source{signals_.descriptor(), POLLIN, 0};
        ::poll(&source, 1, static_cast<int>(kTick.count()));
        hand_on(signals_.take());
        reap();
        if (deadline_ && steady_clock::now() > *deadline_) break;  // the rest is killed
        if (steady_clock::now() < next_report) continue;
        report();
        between = std::min(2 * between, kBetweenReports);
        next_report = steady_clock::now() + between;
      }
    } catch (const Error&) {
      stop_children();
      throw;
    }
    return result();
  }

 private:
  struct Slot {
    std::optional<SweepChild> child;
    std::size_t run = 0;
    steady_clock::time_point since;
  };

  // Folders, and what is left to do: what never failed first.
  void take_stock() {
    std::map<std::string, LedgerRun> known;
    for (LedgerRun& run : ledger_.runs())
      known.emplace(run.id, run);
    std::deque<std::size_t> again;
    for (std::size_t i = 0; i < runs_.size(); ++i) {
      PlannedRun& run = runs_[i];
      const LedgerRun& was = known.at(run.id);
      run.folder = was.folder;
      run.config.out_dir = run_folder(study_.out_dir, run.folder);
      run.config.resolved.set("out_dir", config::Node::scalar(run.config.out_dir, {}, true));
      const std::optional<train::RunStatus> status = train::read_status(run.config.out_dir);
      if (status && status->ended && !train::is_in_use(run.config.out_dir)) {
        if (was.state != RunState::finished) ledger_.ended(run.id, RunState::finished, 0, "");
        ++end_.finished;
        continue;
      }
      if (was.state == RunState::finished)
        log::warn(cat(name_of(i), " had finished, but ", run.config.out_dir,
                      " does not show it any more: it is trained again"));
      if (was.state == RunState::running) left_over_[i] = was.process;
      (was.state == RunState::failed ? again : waiting_).push_back(i);
    }
    waiting_.insert(waiting_.end(), again.begin(), again.end());
    to_do_ = waiting_.size();
  }

  void greet() const {
    log::line(cat("study ", study_.layout.study, ": ", extent_of(study_), ", ", end_.finished,
                  " of ", runs_.size(), " runs finished, ", to_do_, " to do, ", options_.jobs,
                  " at a time, in ", study_.out_dir));
  }

  std::string name_of(std::size_t run) const {
    return cat(study_.cells[runs_[run].cell].name, " seed ", runs_[run].seed);
  }

  bool is_training() const {
    return std::any_of(slots_.begin(), slots_.end(),
                       [](const Slot& slot) { return slot.child.has_value(); });
  }
  bool finished() const { return !is_training() && (waiting_.empty() || stops_ > 0); }

  void start_what_fits() {
    for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
      if (slots_[slot].child) continue;
      const auto free = std::find_if(waiting_.begin(), waiting_.end(),
                                     [&](std::size_t run) { return !held_by_other(run); });
      if (free == waiting_.end()) return;
      const std::size_t run = *free;
      waiting_.erase(free);
      start(slot, run);
    }
  }

  // Whether another process trains in the run's folder; says so once.
  bool held_by_other(std::size_t run) {
    if (!train::is_in_use(runs_[run].config.out_dir)) return false;
    if (!told_.insert(run).second) return true;
    const auto process = left_over_.find(run);
    log::line(cat(name_of(run), ": another process",
                  process == left_over_.end()
                      ? std::string()
                      : cat(" (", process->second, ", of a sweep that was killed)"),
                  " trains in ", runs_[run].config.out_dir, "; waiting for it"));
    return true;
  }

  void start(std::size_t at, std::size_t run) {
    Slot& slot = slots_[at];
    const std::string device =
        options_.devices.empty() ? "" : options_.devices[at % options_.devices.size()];
    slot.run = run;
    slot.since = steady_clock::now();
    slot.child.emplace(study_.out_dir, runs_[run], options_, device);
    ledger_.began(runs_[run].id, slot.child->pid());
    log::line(cat(name_of(run), ": started (process ", slot.child->pid(),
                  device.empty() ? "" : ", GPU ", device, ")"));
  }

  void reap() {
    for (Slot& slot : slots_) {
      if (!slot.child) continue;
      const std::optional<ChildEnd> end = slot.child->end(stops_ > 0);
      if (!end) continue;
      slot.child.reset();
      note(slot, *end);
    }
  }

  void note(const Slot& slot, const ChildEnd& end) {
    const PlannedRun& run = runs_[slot.run];
    if (end.in_use) {
      ledger_.ended(run.id, RunState::stopped, end.code, end.message);
      waiting_.push_front(slot.run);
      return;
    }
    ledger_.ended(run.id, end.state, end.code, end.message);
    const double seconds = std::chrono::duration<double>(steady_clock::now() - slot.since).count();
    std::string what = cat("stopped at step ", step_reached(run.config.out_dir), ", resumable");
    if (end.state == RunState::finished) {
      ++end_.finished;
      what = cat("finished in ", train::human_duration(seconds), results_of(run));
    } else if (end.state == RunState::failed) {
      end_.failed.push_back(
          {study_.cells[run.cell].name, run.config.out_dir, end.message, run.seed, end.code});
      what = cat("FAILED with code ", end.code, ": ", first_line(end.message));
    }
    log::line(cat("[", end_.finished + static_cast<int>(end_.failed.size()), "/", runs_.size(),
                  "] ", name_of(slot.run), ": ", what));
  }

  static std::string results_of(const PlannedRun& run) {
    std::string out;
    const std::optional<train::RunStatus> status = train::read_status(run.config.out_dir);
    for (std::size_t i = 0; status && i < std::min(status->metrics.size(), kShownMetrics); ++i)
      out += cat(", ", status->metrics[i].first, " ", rounded(status->metrics[i].second));
    return out;
  }

  void report() const {
    std::vector<std::string> parts;
    for (const Slot& slot : slots_) {
      if (!slot.child) continue;
      const PlannedRun& run = runs_[slot.run];
      const std::int64_t steps = run.config.planned_steps();
      parts.push_back(cat(name_of(slot.run), " step ", step_reached(run.config.out_dir),
                          steps > 0 ? cat("/", steps) : ""));
    }
    if (!parts.empty())
      log::line(cat("[", end_.finished + static_cast<int>(end_.failed.size()), "/", runs_.size(),
                    "] training: ", join(parts, ", ")));
  }

  void hand_on(const std::vector<int>& stops) {
    for (const int signal : stops) {
      if (++stops_ == 1 && is_training())
        log::line("stopping: the runs save their state; once more to stop at once");
      stop_signal_ = signal;
      for (Slot& slot : slots_) {
        if (slot.child) slot.child->send(signal);
      }
    }
    if (stops_ >= 2 && !deadline_) deadline_ = steady_clock::now() + kAtOnce;
  }

  // Before an error ends the sweep.
  void stop_children() noexcept {
    for (Slot& slot : slots_) {
      if (slot.child) slot.child->send(SIGTERM);
    }
    const auto until = steady_clock::now() + milliseconds(30'000);
    for (Slot& slot : slots_) {
      while (slot.child && !slot.child->has_ended() && steady_clock::now() < until)
        std::this_thread::sleep_for(kTick);
    }
  }

  SweepEnd result() {
    end_.unfinished =
        static_cast<int>(runs_.size()) - end_.finished - static_cast<int>(end_.failed.size());
    end_.code = stops_ >= 2                          ? static_cast<ExitCode>(128 + stop_signal_)
                : stops_ == 1 && end_.unfinished > 0 ? ExitCode::stopped
                : !end_.failed.empty()               ? ExitCode::failed
                : end_.unfinished > 0                ? ExitCode::stopped
                                                     : ExitCode::ok;
    return end_;
  }

  const StudyFile& study_;
  std::span<PlannedRun> runs_;
  const SweepOptions& options_;
  data::FolderLock lock_;
  Ledger ledger_;
  dist::SignalQueue signals_;
  std::deque<std::size_t> waiting_;                // runs
  std::map<std::size_t, std::int64_t> left_over_;  // processes of a sweep that was killed
  std::set<std::size_t> told_;                     // runs that others hold
  std::vector<Slot> slots_;
  std::size_t to_do_ = 0;
  int stops_ = 0, stop_signal_ = 0;
  std::optional<steady_clock::time_point> deadline_;
  SweepEnd end_;
};

}  // namespace

SweepEnd sweep(const StudyFile& study, std::span<PlannedRun> runs, const SweepOptions& options) {
  make_folders(study.out_dir);
  return Sweep(study, runs, options).run();
}

}  // namespace fovea::study
