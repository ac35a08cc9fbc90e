#include "train/train.h"

#include <algorithm>
#include <csignal>

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/error.h"
#include "tiny_run.h"

using namespace fovea;
using namespace fovea::train;
using namespace fovea::test;
namespace fs = std::filesystem;

namespace {

// The run that the others must equal.
struct Straight {
  TemporaryFolder temporary;
  std::string path = temporary.path("straight");
  Straight() { run_tiny(path); }
};

// How a child process that trains ended: its exit code, or -signal. A signal is sent some
// microseconds after metrics.jsonl has got so many lines; a child that has ended by then gets none.
struct Interruption {
  int signal = 0;
  std::int64_t after_lines = 0;
  unsigned microseconds = 0;
};

int train_in_child(const std::string& path, const std::vector<std::string>& overrides,
                   const Interruption& interruption = {}) {
  const pid_t child = ::fork();
  if (child == 0) {
    int code = 0;
    try {
      code = run_tiny(path, overrides).ending == Ending::signal ? 75 : 0;
    } catch (const Error& e) {
      code = static_cast<int>(e.code());
    }
    ::_exit(code);
  }
  int state = 0;
  bool ended = false;
  if (interruption.signal != 0) {
    const auto lines = [&] {
      const std::string text = metrics(path);
      return std::count(text.begin(), text.end(), '\n');
    };
    while (!ended && lines() < interruption.after_lines)
      ended = ::waitpid(child, &state, WNOHANG) == child;
    if (!ended) {
      ::usleep(interruption.microseconds);
      ::kill(child, interruption.signal);
    }
  }
  if (!ended) ::waitpid(child, &state, 0);
  return WIFEXITED(state) ? WEXITSTATUS(state) : -WTERMSIG(state);
}

}  // namespace

TEST_CASE("a run leaves its folder complete") {
  const Straight run;
  for (const char* name :
       {"config.yaml", "overrides.txt", "environment.json", "status.json", "metrics.jsonl",
        "perf.jsonl", "logs/rank_0000.log", "ckpt/step_00000012/manifest.json",
        "ckpt/step_00000012/config.json", "ckpt/step_00000012/model.safetensors",
        "ckpt/step_00000012/optimizer.safetensors", "ckpt/step_00000012/state.json",
        "ckpt/latest/manifest.json"}) {
    CHECK_MESSAGE(fs::exists(run.path + "/" + name), name);
  }
  // 12 step lines and evaluations after steps 4, 8 and 12.
  const std::string lines = metrics(run.path);
  CHECK(std::count(lines.begin(), lines.end(), '\n') == 15);
  CHECK(contents(run.path + "/status.json").find("\"status\":\"finished\"") != std::string::npos);
  CHECK(contents(run.path + "/status.json").find("\"parameters\":") != std::string::npos);
}

TEST_CASE("config.yaml of the run folder is the same run again") {
  const Straight run;
  const RunConfig again = RunConfig::from(config::load(run.path + "/config.yaml"));
  CHECK(again.result_hash() == tiny_config(run.path).result_hash());
}

TEST_CASE("stopped anywhere and resumed, a run gives the same bytes") {
  const Straight straight;
  for (const int stop : {1, 4, 5, 7, 11}) {
    const TemporaryFolder temporary;
    const std::string path = temporary.path("run");
    run_tiny(path, {"train.max_steps=" + std::to_string(stop)});
    CHECK(metrics(path) != metrics(straight.path));
    run_tiny(path);
    CHECK(weights(path) == weights(straight.path));
    CHECK(metrics(path) == metrics(straight.path));
    CHECK(contents(newest(path) + "/optimizer.safetensors") ==
          contents(newest(straight.path) + "/optimizer.safetensors"));
  }
}

TEST_CASE("threads, recompute and the order of micro-batches change no byte") {
  const Straight straight;
  for (const char* change : {"train.threads=2", "train.recompute=true", "train.micro_order=reverse",
                             "train.micro_order=shuffle"}) {
    const TemporaryFolder temporary;
    const std::string path = temporary.path("run");
    run_tiny(path, {change});
    CHECK_MESSAGE(weights(path) == weights(straight.path), change);
    CHECK_MESSAGE(metrics(path) == metrics(straight.path), change);
  }
}

TEST_CASE("another cut into micro-batches consumes the same data") {
  const Straight straight;
  const TemporaryFolder temporary;
  const std::string path = temporary.path("run");
  run_tiny(path, {"train.micro_batch_size=4"});
  const auto hashes = [](const std::string& text) {
    std::string out;
    for (std::size_t at = text.find("data_hash"); at != std::string::npos;
         at = text.find("data_hash", at + 1)) {
      out += text.substr(at, 28);
    }
    return out;
  };
  CHECK_FALSE(hashes(metrics(path)).empty());
  CHECK(hashes(metrics(path)) == hashes(metrics(straight.path)));
}

TEST_CASE("a run killed at any moment can be resumed to the same bytes") {
  const Straight straight;
  std::vector<Interruption> moments;
  for (const std::int64_t lines : {0, 1, 4, 9, 14}) {
    for (const unsigned microseconds : {0u, 700u, 2500u})
      moments.push_back({SIGKILL, lines, microseconds});
  }
  for (const Interruption& moment : moments) {
    const TemporaryFolder temporary;
    const std::string path = temporary.path("run");
    train_in_child(path, {"ckpt.interval=1"}, moment);
    run_tiny(path, {"ckpt.interval=1"});
    CHECK(weights(path) == weights(straight.path));
    CHECK(metrics(path) == metrics(straight.path));
  }
}

TEST_CASE("SIGTERM finishes the step, saves and exits with 75; the run goes on to the same bytes") {
  const Straight straight;
  const TemporaryFolder temporary;
  const std::string path = temporary.path("run");
  const std::vector<std::string> long_run = {"train.max_steps=100000"};
  CHECK(train_in_child(path, long_run, {SIGTERM, 3, 0}) == 75);
  CHECK(contents(path + "/status.json").find("\"status\":\"stopped\"") != std::string::npos);
  const std::int64_t step = checkpoints_in(path).back().step;
  CHECK(step > 0);
  const std::vector<std::string> target = {"train.max_steps=" + std::to_string(step + 5),
                                           "train.resume=auto"};
  run_tiny(path, target);
  const std::string undisturbed = temporary.path("undisturbed");
  run_tiny(undisturbed, target);
  CHECK(weights(path) == weights(undisturbed));
  CHECK(metrics(path) == metrics(undisturbed));
}

TEST_CASE("a second signal ends the process at once") {
  const TemporaryFolder temporary;
  const pid_t child = ::fork();
  if (child == 0) {
    run_tiny(temporary.path("run"),
             {"train.max_steps=100000000", "log.interval=1000000", "eval.interval=0"});
    ::_exit(0);
  }
  while (!fs::exists(temporary.path("run") + "/status.json"))
    ::usleep(1000);
  // Both arrive before the step that would notice the first one can end: the process is stopped
  // meanwhile.
  ::kill(child, SIGSTOP);
  ::kill(child, SIGINT);
  ::kill(child, SIGTERM);
  ::kill(child, SIGCONT);
  int state = 0;
  ::waitpid(child, &state, 0);
  REQUIRE(WIFEXITED(state));
  CHECK((WEXITSTATUS(state) == 143 || WEXITSTATUS(state) == 130));
}

TEST_CASE("a finished run has nothing to do") {
  const Straight run;
  const std::string before = metrics(run.path);
  const TrainResult again = run_tiny(run.path);
  CHECK(again.ending == Ending::already_finished);
  CHECK(again.step == 12);
  CHECK(again.metrics.front().first == "loss");
  CHECK(metrics(run.path) == before);
}

TEST_CASE("a changed key that results depend on is refused by name") {
  const Straight run;
  CHECK_THROWS_WITH_AS(run_tiny(run.path, {"optim.lr=1e-2", "train.max_steps=20"}),
                       doctest::Contains("optim.lr: 0.003 -> 0.01"), ConfigError);
  CHECK_THROWS_WITH_AS(run_tiny(run.path, {"seed=8"}), doctest::Contains("seed: 7 -> 8"),
                       ConfigError);
}

TEST_CASE("a schedule that hangs on max_steps cannot be made longer") {
  const TemporaryFolder temporary;
  const std::string path = temporary.path("run");
  run_tiny(path, {"sched.kind=cosine", "train.max_steps=6"});
  CHECK_THROWS_WITH_AS(run_tiny(path, {"sched.kind=cosine"}),
                       doctest::Contains("train.max_steps: 6 -> 12"), ConfigError);
}

TEST_CASE("resume: never refuses to overwrite a run") {
  const Straight run;
  CHECK_THROWS_WITH_AS(run_tiny(run.path, {"train.resume=never"}), doctest::Contains("resume"),
                       ConfigError);
}

TEST_CASE("resume from a path goes back to that checkpoint and sets newer ones aside") {
  const Straight straight;
  const TemporaryFolder temporary;
  const std::string path = temporary.path("run");
  run_tiny(path, {"ckpt.keep_last=10"});
  run_tiny(path, {"ckpt.keep_last=10", "train.resume=" + path + "/ckpt/step_00000005"});
  CHECK(weights(path) == weights(straight.path));
  CHECK(metrics(path) == metrics(straight.path));
  CHECK(fs::exists(path + "/ckpt/discarded_step_00000010"));
}

TEST_CASE("a new folder may start from another run's checkpoint") {
  const Straight straight;
  const TemporaryFolder temporary;
  const std::string path = temporary.path("fork");
  const TrainResult result =
      run_tiny(path, {"train.resume=" + straight.path, "train.max_steps=14"});
  CHECK(result.step == 14);
  CHECK(metrics(path).find("\"step\":13") < 2);
}

TEST_CASE("a torn checkpoint is passed over for an older whole one") {
  const Straight straight;
  const TemporaryFolder temporary;
  const std::string path = temporary.path("run");
  run_tiny(path, {"train.max_steps=11"});  // checkpoints of steps 10 and 11
  const std::string torn = newest(path) + "/model.safetensors";
  overwrite(torn, contents(torn).substr(0, 100));
  run_tiny(path);
  CHECK(weights(path) == weights(straight.path));
  CHECK(metrics(path) == metrics(straight.path));
}

TEST_CASE("no whole checkpoint at all is an error, not a fresh start") {
  const TemporaryFolder temporary;
  const std::string path = temporary.path("run");
  run_tiny(path, {"train.max_steps=3"});
  fs::remove(newest(path) + "/manifest.json");
  CHECK_THROWS_WITH_AS(run_tiny(path), doctest::Contains("no checkpoint is whole"),
                       CheckpointError);
}

TEST_CASE("metrics altered below their committed length are a checkpoint error") {
  const TemporaryFolder temporary;
  const std::string path = temporary.path("run");
  run_tiny(path, {"train.max_steps=3"});
  std::string text = metrics(path);
  text[8] = '9';
  overwrite(path + "/metrics.jsonl", text);
  CHECK_THROWS_WITH_AS(run_tiny(path), doctest::Contains("metrics.jsonl"), CheckpointError);
}

TEST_CASE("early stopping ends a run that does not improve, for good") {
  const TemporaryFolder temporary;
  const std::string path = temporary.path("run");
  // No learning rate, no improvement: the first evaluation is the best, two more end the run.
  const std::vector<std::string> overrides = {"optim.lr=0", "eval.interval=1", "eval.patience=2"};
  const TrainResult result = run_tiny(path, overrides);
  CHECK(result.ending == Ending::early_stop);
  CHECK(result.step == 3);
  CHECK(run_tiny(path, overrides).ending == Ending::already_finished);
  CHECK(run_tiny(path, {"optim.lr=0", "eval.interval=1", "eval.patience=4"}).step == 5);
}

TEST_CASE("keep_best keeps the checkpoint of the best evaluation") {
  const TemporaryFolder temporary;
  const std::string path = temporary.path("run");
  run_tiny(path, {"optim.lr=0", "eval.interval=2", "ckpt.keep_best=true", "ckpt.keep_last=1"});
  CHECK(checkpoints_in(path).size() == 2);
  CHECK(checkpoints_in(path).front().step == 2);
}

TEST_CASE("max_time ends a run that can be given more time") {
  const TemporaryFolder temporary;
  const std::string path = temporary.path("run");
  const TrainResult result = run_tiny(path, {"train.max_time=0.001"});
  CHECK(result.ending == Ending::max_time);
  CHECK(result.step < 12);
  CHECK(run_tiny(path, {"train.max_time=0.001"}).ending == Ending::already_finished);
  CHECK(run_tiny(path, {"train.max_time=1000"}).ending == Ending::finished);
}

TEST_CASE("max_tokens ends a run like the steps it amounts to") {
  const Straight straight;
  const TemporaryFolder temporary;
  // 16 sequences of 16 tokens a step.
  const std::string path = temporary.path("run");
  run_tiny(path, {"train.max_steps=0", "train.max_tokens=2900"});
  CHECK(weights(path) == weights(straight.path));
}

TEST_CASE("a run folder that is in use is refused") {
  const TemporaryFolder temporary;
  const RunFolder taken(temporary.path("run"));
  CHECK(train_in_child(temporary.path("run"), {}) == 2);
}
