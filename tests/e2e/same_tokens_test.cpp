// However a run is cut into micro-batches, threads and starts, it sees the same tokens.

#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "data/temp_folder.h"
#include "process.h"

using namespace fovea::test;

namespace {

struct Column {
  std::vector<std::string> hashes;  // of steps 1, 2, ...
  std::vector<double> losses;
};

Column metrics_of(const std::string& run) {
  Column out;
  const std::string text = file_text(run + "/metrics.jsonl");
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    const auto line = nlohmann::json::parse(text.substr(at, end - at));
    at = end + 1;
    if (!line.contains("data_hash")) continue;
    REQUIRE(line["step"] == out.hashes.size() + 1);
    out.hashes.push_back(line["data_hash"]);
    out.losses.push_back(line["loss"]);
  }
  return out;
}

std::vector<std::string> train_on(const std::string& text, const std::string& folder,
                                  std::vector<std::string> more) {
  std::vector<std::string> arguments = {
      "train",
      std::string(FOVEA_SOURCE_DIR) + "/configs/lm/bytes_cpu.yaml",
      "data.path=" + text,
      "out_dir=" + folder,
      "model.n_layer=1",
      "model.n_embd=16",
      "model.block_size=32",
      "train.global_batch_size=8",
      "train.max_steps=14",
      "sched.warmup_steps=2",
      "eval.interval=0",
      "ckpt.interval=4",
      "log.interval=1"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

std::string some_text() {
  std::string out;
  for (int i = 0; i < 400; ++i)
    out += "line " + std::to_string(i * i % 997) + " of a text\n";
  return out;
}

}  // namespace

TEST_SUITE("end to end") {
  TEST_CASE("killed and resumed with other micro-batches and threads, a run sees the same tokens") {
    const TempFolder folder;
    const std::string text = folder.put("text.txt", some_text());
    const Finished straight = run_fovea(
        train_on(text, folder / "straight", {"train.micro_batch_size=8", "--threads", "1"}));
    REQUIRE_MESSAGE(straight.code == 0, straight.err);
    const Column expected = metrics_of(folder / "straight");
    REQUIRE(expected.hashes.size() == 14);
    CHECK(expected.hashes[0] != expected.hashes[1]);

    const Finished killed =
        run_fovea(train_on(text, folder / "killed", {"train.micro_batch_size=4", "--threads", "2"}),
                  {"step 6/", [](pid_t id) { ::kill(id, SIGKILL); }});
    CHECK(killed.code == 128 + SIGKILL);
    const Finished stopped =
        run_fovea(train_on(text, folder / "killed", {"train.micro_batch_size=1", "--threads", "2"}),
                  {"step 10/", [](pid_t id) { ::kill(id, SIGTERM); }});
    CHECK_MESSAGE(stopped.code == 75, stopped.err);
    CHECK(stopped.err.find("train.micro_batch_size is 1, but was 4") != std::string::npos);
    const Finished resumed = run_fovea(
        train_on(text, folder / "killed", {"train.micro_batch_size=2", "--threads", "1"}));
    REQUIRE_MESSAGE(resumed.code == 0, resumed.err);

    const Column found = metrics_of(folder / "killed");
    CHECK(found.hashes == expected.hashes);
    REQUIRE(found.losses.size() == expected.losses.size());
    for (std::size_t i = 0; i < found.losses.size(); ++i)
      CHECK(found.losses[i] == doctest::Approx(expected.losses[i]).epsilon(1e-4));
  }

  TEST_CASE("the hash tells other tokens and another order of them") {
    const TempFolder folder;
    const std::string text = folder.put("text.txt", some_text());
    const std::string other = folder.put("other.txt", some_text() + "more\n");
    REQUIRE(
        run_fovea(train_on(text, folder / "a", {"train.max_steps=3", "train.micro_batch_size=4"}))
            .code == 0);
    REQUIRE(run_fovea(train_on(text, folder / "b",
                               {"train.max_steps=3", "train.micro_batch_size=4", "seed=2"}))
                .code == 0);
    REQUIRE(
        run_fovea(train_on(other, folder / "c", {"train.max_steps=3", "train.micro_batch_size=4"}))
            .code == 0);
    const auto a = metrics_of(folder / "a").hashes, b = metrics_of(folder / "b").hashes,
               c = metrics_of(folder / "c").hashes;
    CHECK(a != b);
    CHECK(a != c);
  }
}
