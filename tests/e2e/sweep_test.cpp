// Studies, as a user runs them: swept, killed at any moment, swept again, and reported.

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "core/text.h"
#include "data/temp_folder.h"
#include "process.h"

using namespace fovea;
using namespace fovea::test;

namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

// Two methods, three seeds, a fraction of a second each.
struct Study {
  TempFolder folder;
  std::string file, out;

  explicit Study(const std::string& more =
                     "grid: {model.attention.kind: [standard, linear]}\n"
                     "baseline: standard\n")
      : out(folder / "out") {
    folder.put("base.yaml", R"(
task: lm
data: {kind: markov, markov: {vocab: 32, train_examples: 512, test_examples: 24}}
model: {n_layer: 1, n_head: 2, n_embd: 32, block_size: 16}
train: {global_batch_size: 8, max_steps: 200}
optim: {lr: 3e-3}
sched: {kind: constant, warmup_steps: 4}
eval: {interval: 100}
ckpt: {interval: 25}
log: {interval: 5}
)");
    file = study(more);
  }
  std::string study(const std::string& more, const std::string& name = "study.yaml") const {
    return folder.put(name, "base: base.yaml\nname: study\nout_dir: " + out + "\n" + more);
  }
  Finished sweep(const Words& more = {}, const When& when = {}) const {
    Words words = {"sweep", file};
    words.insert(words.end(), more.begin(), more.end());
    return run_fovea(words, when);
  }
  // The report without clocks, and what the runs computed.
  std::string results() const {
    std::string all;
    for (const char* format : {"markdown", "csv", "json"}) {
      const Finished report = run_fovea({"report", file, "--results-only", "--format", format});
      REQUIRE_MESSAGE(report.code == 0, report.err);
      all += report.out;
    }
    for (const std::string& name : runs())
      all += file_text(cat(out, "/runs/", name, "/metrics.jsonl"));
    return all;
  }
  Words runs() const {
    Words names;
    std::error_code none_yet;
    for (const auto& entry : fs::directory_iterator(out + "/runs", none_yet))
      names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }
  int checkpoints() const {
    int count = 0;
    for (const std::string& name : runs())
      count += fs::exists(cat(out, "/runs/", name, "/ckpt/latest")) ? 1 : 0;
    return count;
  }
};

Words children_of(pid_t process) {
  std::ifstream list(cat("/proc/", process, "/task/", process, "/children"));
  return {std::istream_iterator<std::string>(list), {}};
}

// One that has not ended yet, or "".
std::string running_child(pid_t process) {
  for (const std::string& child : children_of(process)) {
    const std::string stat = file_text("/proc/" + child + "/stat");
    const std::size_t name_end = stat.rfind(')');
    if (name_end != std::string::npos && !contains(stat.substr(name_end), ") Z")) return child;
  }
  return "";
}

// Waits for something that a process is about to do; half a minute at most.
template <class Condition>
void wait_for(Condition condition) {
  for (int i = 0; i < 15'000 && !condition(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

std::int64_t lines_with(const std::string& text, const std::string& part) {
  std::int64_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++count;
  return count;
}

}  // namespace

TEST_SUITE("end to end") {
  TEST_CASE("a sweep that is killed in every way reports what an undisturbed one does") {
    const Study calm;
    const Finished undisturbed = calm.sweep({"--jobs", "2"});
    REQUIRE_MESSAGE(undisturbed.code == 0, undisturbed.err);
    CHECK(contains(undisturbed.err, "6 to do, 2 at a time"));
    CHECK(contains(undisturbed.err, "[6/6]"));

    const Study study;
    const auto killed = [&](const std::string& at, const std::function<void(pid_t)>& how) {
      return study.sweep({"--jobs", "2"}, {at, how});
    };
    // At once, when no run has saved anything.
    CHECK(killed("started", [](pid_t sweep) { ::kill(sweep, SIGKILL); }).code == 128 + SIGKILL);
    // The children, told by the kernel, save their state; the next sweep waits for them.
    killed("started", [&](pid_t sweep) {
      wait_for([&] { return study.checkpoints() > 0; });
      ::kill(sweep, SIGKILL);
    });
    // With all children.
    killed("finished in", [&](pid_t sweep) {
      const Words children = children_of(sweep);
      ::kill(sweep, SIGKILL);
      for (const std::string& child : children)
        ::kill(static_cast<pid_t>(std::stoi(child)), SIGKILL);
    });
    // One child alone: its run has failed, the others go on.
    const Finished one = killed("started", [&](pid_t sweep) {
      std::string running;
      wait_for([&] { return !(running = running_child(sweep)).empty(); });
      ::kill(static_cast<pid_t>(std::stoi(running)), SIGKILL);
    });
    CHECK_MESSAGE(one.code == 1, one.err);
    CHECK_MESSAGE(lines_with(one.err, "FAILED with code 137: was killed by signal 9") == 1,
                  one.err);

    const Finished last = study.sweep();
    REQUIRE_MESSAGE(last.code == 0, last.err);
    CHECK(contains(last.err, "5 of 6 runs finished, 1 to do"));
    const auto without_folder = [](std::string text, const std::string& folder) {
      for (std::size_t at; (at = text.find(folder)) != std::string::npos;)
        text.erase(at, folder.size());
      return text;
    };
    CHECK(without_folder(study.results(), study.folder.path()) ==
          without_folder(calm.results(), calm.folder.path()));
    const Finished nothing = study.sweep();
    CHECK(nothing.code == 0);
    CHECK(contains(nothing.err, "6 of 6 runs finished, 0 to do"));
  }

  TEST_CASE("a signal stops the runs, which save their state, and the sweep ends with 75") {
    for (const int signal : {SIGINT, SIGTERM}) {
      const Study study("points: [{train.max_steps: 100000}]\nseeds: [1, 2, 3]\n");
      const Finished stopped = study.sweep({"--jobs", "2", "--json"},
                                           {"started", [&](pid_t sweep) {
                                              wait_for([&] { return study.checkpoints() == 2; });
                                              ::kill(sweep, signal);
                                            }});
      CHECK_MESSAGE(stopped.code == 75, stopped.err);
      CHECK(contains(stopped.err, "stopping: the runs save their state"));
      CHECK(lines_with(stopped.err, ", resumable") == 2);
      CHECK(nlohmann::json::parse(stopped.out)["unfinished"] == 3);
      const Finished report = run_fovea({"report", study.out});
      CHECK(contains(report.out, "3 runs, 0 have finished, 3 not yet."));
      CHECK(lines_with(report.out, "| stopped |") == 2);
      CHECK(lines_with(report.out, "| not started |") == 1);
    }
  }

  TEST_CASE("a run that diverges costs its own line only, which keeps the reason") {
    const Study study(
        "points: [{}, {name: hot, optim.lr: 1000, optim.weight_decay: 1}]\nseeds: [1]\n");
    const Finished sweep = study.sweep({"--json"});
    CHECK_MESSAGE(sweep.code == 1, sweep.err);
    const auto record = nlohmann::json::parse(sweep.out);
    CHECK(record["ok"] == false);
    CHECK(record["finished"] == 1);
    CHECK(record["failed"][0]["cell"] == "hot");
    CHECK(record["failed"][0]["code"] == 4);
    CHECK(contains(record["failed"][0]["message"].get<std::string>(), "not finite"));
    const Finished report = run_fovea({"report", study.out, "--metrics", "loss"});
    CHECK(report.code == 0);
    CHECK_MESSAGE(contains(report.out, "| hot | 1 | failed | 4 | "), report.out);
    CHECK(contains(report.out, "| base | 1 | "));
    CHECK(contains(report.out, "none: only 1 seed"));
    // Tried again, and failing in the same way.
    CHECK(contains(study.sweep().err, "1 of 2 runs finished, 1 to do"));
  }

  TEST_CASE("every point is checked before any starts") {
    const Study study(
        "grid: {model.attention.kind: [standard, linear, linaer], optim.lr: [1, -1]}");
    const Finished sweep = study.sweep();
    CHECK(sweep.code == 2);
    CHECK(contains(sweep.err, "did you mean linear?"));
    CHECK(contains(sweep.err, "optim.lr is -1"));
    CHECK_FALSE(fs::exists(study.out));
    // A method's own refusal, which its model meets.
    const Study refused("grid: {model.attention.kind: [standard, linformer]}\n");
    CHECK(refused.sweep({"--dry-run"}).code == 2);
    CHECK_FALSE(fs::exists(refused.out));
    const Finished good = Study().sweep({"--dry-run"});
    CHECK(good.code == 0);
    CHECK(contains(good.out, "2 cells x 3 seeds: 6 runs"));
  }

  TEST_CASE("files that are no study, ledger or folder end with the documented codes") {
    const Study study("points: [{}]\nseeds: [1]\n");
    const auto code = [&](const std::string& more) {
      return run_fovea({"sweep", study.study(more, "other.yaml")});
    };
    CHECK(code("points: [{}]\njobz: 2\n").code == 2);
    CHECK(contains(code("points: [{}]\njobz: 2\n").err, "other.yaml:5:1: unknown key jobz"));
    CHECK(code("grid: {}\n").code == 2);
    CHECK(code("points: [{name: a}, {name: b}]\n").code == 2);
    CHECK(run_fovea({"sweep", study.folder / "none.yaml"}).code == 2);
    CHECK(run_fovea({"report", study.file}).code == 3);
    CHECK(run_fovea({"report", study.folder.path()}).code == 3);
    CHECK(run_fovea({"report"}).code == 2);
    CHECK(contains(run_fovea({"report", study.file}).err, "no ledger here: run fovea sweep first"));
    for (const Words& several :
         {Words{study.file, study.file}, Words{study.folder.path(), study.file}}) {
      const Finished refused = run_fovea({"report", several[0], several[1]});
      CHECK(refused.code == 2);
      CHECK(contains(refused.err, "takes one study, or several run folders"));
    }

    REQUIRE(study.sweep({"train.max_steps=2"}).code == 0);
    CHECK(contains(run_fovea({"report", study.out, study.out}).err, "is a study's folder"));
    CHECK(nlohmann::json::parse(run_fovea({"inspect", "--json", study.out}).out)["kind"] ==
          "study folder");
    CHECK(run_fovea({"inspect", study.file}).code == 0);
    CHECK(run_fovea({"report", study.out, "--baseline", "bose"}).code == 2);
    CHECK(contains(run_fovea({"report", study.out, "--metrics", "los"}).err, "did you mean loss?"));
    const std::string other = study.folder.put(
        "third.yaml", "base: base.yaml\npoints: [{}]\nout_dir: " + study.out + "\n");
    const Finished foreign = run_fovea({"sweep", other});
    CHECK(foreign.code == 2);
    CHECK(contains(foreign.err, "is the ledger of the study 'study', not of 'third'"));
    const Finished shown = run_fovea({"report", other});
    CHECK(shown.code == 2);
    CHECK(contains(shown.err, "is the ledger of the study 'study', not of 'third'"));
    study.folder.put("out/ledger.sqlite", std::string(9000, '\x07'));
    const Finished damaged = study.sweep();
    CHECK(damaged.code == 3);
    CHECK(contains(damaged.err, "ledger.sqlite: the ledger is damaged"));
    CHECK(contains(damaged.err, "move it away"));
    CHECK(run_fovea({"report", study.out}).code == 3);
    const std::string blocked = study.folder.put(
        "blocked.yaml", "base: base.yaml\npoints: [{}]\nout_dir: " + study.file + "/out\n");
    CHECK(run_fovea({"sweep", blocked}).code == 3);
  }

  TEST_CASE("runs that no study made are reported by what they differ in") {
    const Study study;
    Words report = {"report"};
    for (const char* seed : {"1", "2"}) {
      for (const char* width : {"16", "32"}) {
        report.push_back(study.folder / cat("run", seed, width));
        const Finished run = run_fovea({"train", study.folder / "base.yaml", "train.max_steps=3",
                                        "sched.warmup_steps=0", cat("seed=", seed),
                                        cat("model.n_embd=", width), "out_dir=" + report.back()});
        REQUIRE_MESSAGE(run.code == 0, run.err);
      }
    }
    report.insert(report.end(), {"--baseline", "16", "--metrics", "loss"});
    const Finished shown = run_fovea(report);
    CHECK_MESSAGE(shown.code == 0, shown.err);
    CHECK_MESSAGE(contains(shown.out, "| model.n_embd | seeds | mean |"), shown.out);
    CHECK(contains(shown.out, "| 32 | 2 | "));
    CHECK(contains(shown.out, "to 16 (2 pairs)"));
  }

  TEST_CASE("sweep and report explain themselves, and a report can be a file") {
    CHECK(contains(run_fovea({"sweep", "--help"}).out, "fovea sweep"));
    CHECK(contains(run_fovea({"report", "--help"}).out, "--results-only"));
    CHECK(contains(run_fovea({"report", "--help"}).out, "[STUDY|RUN...]"));
    const Study study("points: [{train.max_steps: 2}]\nseeds: [1]\n");
    REQUIRE(study.sweep().code == 0);
    const std::string file = study.folder / "report.md";
    CHECK(run_fovea({"report", study.out, "--output", file}).out == "wrote " + file + "\n");
    CHECK(file_text(file).starts_with("# study\n\n1 run, 1 has finished."));
    const Finished example =
        run_fovea({"sweep", FOVEA_SOURCE_DIR "/configs/studies/recall.yaml", "--dry-run"});
    CHECK_MESSAGE(example.code == 0, example.err);
    CHECK(contains(example.out, "4 cells x 3 seeds: 12 runs"));
    const Finished json = run_fovea({"report", study.out, "--json"});
    CHECK(nlohmann::json::parse(json.out)["report"]["runs"][0]["state"] == "finished");
  }
}
