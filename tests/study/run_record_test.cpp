// What counts of a run folder.

#include "study/run_record.h"

#include <cmath>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "data/temp_folder.h"

using namespace fovea;
using namespace fovea::test;
using study::RunRecord;
using study::Select;

namespace {

constexpr const char* kStatus =
    R"({"status":"finished","step":30,"max_steps":30,"checkpoint_step":30,"tokens":1,"seconds":2.5,
        "parameters":1200,"best":{"value":0.5,"step":20},"metrics":{"loss":2}})";

struct RunCase {
  TempFolder folder;
  RunCase() {
    put("status.json", kStatus);
    put("metrics.jsonl",
        "{\"step\":10,\"loss\":9}\n{\"step\":20,\"eval\":\"validation\",\"loss\":1.5,\"accuracy\":"
        "0.5}\n"
        "{\"step\":30,\"eval\":\"validation\",\"loss\":2,\"accuracy\":0.25}\n");
    put("perf.jsonl",
        "{\"step\":1,\"tokens_per_second\":5,\"peak_bytes\":100,\"flops\":7,\"executed_flops\":8}\n"
        "{\"step\":10,\"tokens_per_second\":100,\"peak_bytes\":300,\"flops\":7,\"executed_flops\":"
        "8}\n"
        "{\"step\":20,\"event\":\"evaluation\",\"peak_bytes\":400}\n"
        "{\"step\":20,\"tokens_per_second\":300,\"peak_bytes\":200,\"flops\":7,\"executed_flops\":"
        "8}\n");
  }
  void put(const std::string& name, const std::string& text) const { folder.put(name, text); }
  RunRecord read(Select select = Select::last) const {
    return study::read_run(folder.path(), select);
  }
};

}  // namespace

TEST_CASE("the last evaluation counts, or the one that was best") {
  const RunCase run;
  const RunRecord last = run.read(), best = run.read(Select::best);
  CHECK(last.state == "finished");
  REQUIRE(last.metrics.size() == 2);
  CHECK(last.metrics[0] == std::pair<std::string, double>("loss", 2));
  CHECK(last.metrics[1] == std::pair<std::string, double>("accuracy", 0.25));
  CHECK(best.metrics[0].second == 1.5);
  CHECK(last.message.empty());
}

TEST_CASE("speed is the median without the first line, memory the largest of all") {
  const RunRecord run = RunCase().read();
  CHECK(run.cost.tokens_per_second == 200);
  CHECK(run.cost.peak_bytes == 400);
  CHECK(run.cost.flops == 7);
  CHECK(run.cost.executed_flops == 8);
  CHECK(run.cost.parameters == 1200);
  CHECK(run.cost.seconds == 2.5);
}

TEST_CASE("a value that is not finite is named and not counted") {
  const RunCase run;
  run.put("metrics.jsonl",
          "{\"step\":30,\"eval\":\"validation\",\"loss\":null,\"accuracy\":0.25}\n");
  const RunRecord found = run.read();
  REQUIRE(found.metrics.size() == 1);
  CHECK(found.metrics[0].first == "accuracy");
  CHECK(found.message == "not finite: loss");
}

TEST_CASE("lines that are cut or no JSON are passed over") {
  const RunCase run;
  run.put("metrics.jsonl",
          "nonsense\n{\"step\":30,\"eval\":\"validation\",\"loss\":2}\n[1]\n{\"step\":4");
  CHECK(run.read().metrics.size() == 1);
}

TEST_CASE("a run without evaluation, metrics or status says what it lacks") {
  const RunCase run;
  run.put("metrics.jsonl", "{\"step\":10,\"loss\":9}\n");
  CHECK(run.read().message == "it was never evaluated");
  CHECK(contains(run.read(Select::best).message, "eval.interval"));
  std::filesystem::remove(run.folder / "metrics.jsonl");
  CHECK(contains(run.read().message, "metrics.jsonl"));
  std::filesystem::remove(run.folder / "status.json");
  CHECK(run.read().state == "not started");
}

TEST_CASE("a run that has not ended is stopped, or running while a process holds its folder") {
  const RunCase run;
  std::string status = kStatus;
  run.put("status.json", status.replace(status.find("finished"), 8, "running"));
  CHECK(run.read().state == "stopped");
  CHECK(run.read().metrics.empty());
  const int lock = ::open((run.folder / ".lock").c_str(), O_RDWR | O_CREAT, 0666);
  REQUIRE(::flock(lock, LOCK_EX | LOCK_NB) == 0);
  CHECK(run.read().state == "running");
  ::close(lock);
}
