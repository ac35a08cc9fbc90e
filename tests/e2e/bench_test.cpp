// fovea bench and its kin, as a user calls them on a machine without a GPU.

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "data/temp_folder.h"
#include "process.h"

using namespace fovea::test;

namespace {

nlohmann::json record_of(const std::vector<std::string>& arguments) {
  const Finished run = run_fovea(arguments);
  REQUIRE(run.code == 0);
  return nlohmann::json::parse(run.out);
}

const std::vector<std::string> kTiny = {"bench",     "train", "--shape",  "lra_tiny",  "--batch",
                                        "2",         "--seq", "32",       "--seconds", "0.01",
                                        "--threads", "1",     "--device", "cpu"};

std::vector<std::string> tiny_with(const std::vector<std::string>& more) {
  std::vector<std::string> out = kTiny;
  out.insert(out.end(), more.begin(), more.end());
  return out;
}

}  // namespace

TEST_SUITE("end to end") {
  TEST_CASE("bench train prints one record") {
    const auto record = record_of(tiny_with({"--json"}));
    CHECK(record["ok"] == true);
    CHECK(record["shape"] == "lra_tiny");
    CHECK(record["batch"] == 2);
    CHECK(record["seq"] == 32);
    CHECK(record["precision"] == "fp32");
    CHECK(record["tokens_per_second"].get<double>() > 0);
    CHECK(record["first_loss_seconds"].get<double>() > 0);
  }

  TEST_CASE("bench train compares both ways to add up micro-batches") {
    const auto record = record_of(tiny_with({"--micro", "1", "--compare", "both", "--json"}));
    CHECK(record["reproducible"]["reproducible"] == true);
    CHECK(record["fast"]["reproducible"] == false);
    CHECK(record["fast"]["micro_batches"] == 2);
    CHECK(record["fast_speedup"].get<double>() > 0);
  }

  TEST_CASE("bench train refuses what no run could be") {
    const Finished precision = run_fovea(tiny_with({"--precision", "bf17"}));
    CHECK(precision.code == 2);
    CHECK(contains(precision.err, "train.precision is 'bf17'"));
    const Finished shape = run_fovea({"bench", "train", "--shape", "gpt3"});
    CHECK(shape.code == 2);
    CHECK(contains(shape.err, "gpt2-124m"));
    CHECK(run_fovea(tiny_with({"--attention", "standrad"})).code == 2);
  }

  TEST_CASE("bench comm times two processes and prints one record") {
    const auto record = record_of(
        {"bench", "comm", "--nproc", "2", "--mib", "0.01,0.1", "--seconds", "0.01", "--json"});
    CHECK(record["ok"] == true);
    CHECK(record["ranks"] == 2);
    CHECK(record["library"] == "Gloo");
    CHECK(record["operations"].size() == 8);
    CHECK(record["operations"][0]["bytes"] == 10'484);
    CHECK(record["link_rate"].is_null());
  }

  TEST_CASE("bench comm refuses one process, sizes that are none, and two devices at once") {
    const Finished alone = run_fovea({"bench", "comm"});
    CHECK(alone.code == 2);
    CHECK(contains(alone.err, "--nproc N"));
    for (const std::string size : {"0", "-1", "1,x", "1,,2", "nan", "1e9"}) {
      const Finished run = run_fovea({"bench", "comm", "--nproc", "2", "--mib=" + size});
      CHECK(run.code == 2);
      CHECK(contains(run.err, "--mib"));
    }
    CHECK(run_fovea({"bench", "comm", "--nproc", "2", "--device", "cuda"}).code == 2);
  }

  TEST_CASE("bench attention times a method at every length and sets a peer beside it") {
    const TempFolder folder;
    const std::string peer = folder.put(
        "peer.json",
        R"([{"name": "theirs-causal", "N": 40, "B": 2, "H": 4, "Hk": 2, "D": 12, "fwd_ms": 1,
             "bwd_ms": 2}])");
    const auto record =
        record_of({"bench",  "attention", "--kind",   "standard",   "--n", "40,70",     "--batch",
                   "2",      "--heads",   "4",        "--kv-heads", "2",   "--d-qk",    "8",
                   "--d-v",  "12",        "--causal", "--device",   "cpu", "--seconds", "0.001",
                   "--peer", peer,        "--json",   "softcap=30"});
    CHECK(record["ok"] == true);
    CHECK(record["dtype"] == "fp32");
    REQUIRE(record["runs"].size() == 2);
    const auto& run = record["runs"][0];
    CHECK(run["n"] == 40);
    CHECK(run["kernel"] == "tiled");
    // Pairs of 2 samples and 4 heads, products of 8 and 12 columns.
    CHECK(run["forward"]["useful_flops"] == 2.0 * 2 * 4 * (40 * 41 / 2) * (8 + 12));
    CHECK(run["forward"]["counted_flops"] == run["forward"]["useful_flops"]);
    CHECK(run["backward"]["ms"].get<double>() > 0);
    CHECK(run["error"].get<double>() < 1e-5);
    CHECK(run["errors"].size() == 4);
    CHECK(run["peers"][0]["name"] == "theirs-causal");
    CHECK(record["runs"][1]["peers"].empty());
  }

  TEST_CASE("bench attention takes keys of another number and 16 bits, and says what it lacks") {
    const auto record = record_of({"bench", "attention", "--n", "1", "--m", "70", "--heads", "2",
                                   "--batch", "1", "--dtype", "bf16", "--device", "cpu",
                                   "--seconds", "0.001", "--error-n", "16", "--json"});
    CHECK(record["runs"][0]["m"] == 70);
    CHECK(record["runs"][0]["error_n"] == 16);
    CHECK(record["runs"][0]["error"].get<double>() < 2e-2);
    const Finished kind = run_fovea({"bench", "attention", "--kind", "standrad"});
    CHECK(kind.code == 2);
    CHECK(contains(kind.err, "did you mean standard?"));
    for (const std::vector<std::string>& more : {std::vector<std::string>{"--n", "0"},
                                                 {"--n", "1,x"},
                                                 {"--heads", "3", "--kv-heads", "2"},
                                                 {"--causal", "--m", "9"},
                                                 {"softcap=0"},
                                                 {"softcap"}}) {
      std::vector<std::string> arguments = {"bench", "attention", "--device", "cpu"};
      arguments.insert(arguments.end(), more.begin(), more.end());
      CHECK(run_fovea(arguments).code == 2);
    }
    CHECK(run_fovea({"bench", "attention", "--peer", "/no/such/file"}).code == 3);
    CHECK(run_fovea({"bench", "attention", "--n", "16777216", "--heads", "1000000"}).code == 2);
  }

  TEST_CASE("bench attention tells the lengths before one that fails") {
    const std::vector<std::string> arguments = {
        "bench", "attention", "--kind",    "bigbird", "--n",        "64,128",  "--device",
        "cpu",   "--json",    "--seconds", "0.001",   "max_len=64", "block=16"};
    const Finished run = run_fovea(arguments);
    CHECK(run.code == 2);
    const auto record = nlohmann::json::parse(run.out);
    CHECK(record["ok"] == false);
    CHECK(record["code"] == 2);
    CHECK(record["runs"].size() == 1);
    CHECK(record["runs"][0]["n"] == 64);
    CHECK(contains(record["failed"].get<std::string>(), "N128"));
    CHECK(contains(run.err, "max_len"));
  }

  TEST_CASE("bench op names its kernels when asked for another") {
    const Finished run = run_fovea({"bench", "op", "--device", "cpu", "adamw_stp"});
    CHECK(run.code == 2);
    CHECK(contains(run.err, "did you mean adamw_step?"));
  }

  TEST_CASE(
      "bench gemm --tune finds out first whether its table can be written, and what is in it") {
    const auto tuned = [](const std::string& out) {
      return run_fovea(
          {"bench", "gemm", "--shape", "lra_tiny", "--tune", "--seconds", "0.01", "--out", out});
    };
    const Finished nowhere = tuned("/no/such/folder/table.yaml");
    CHECK(nowhere.code == 3);
    CHECK(contains(nowhere.err, "/no/such/folder/table.yaml"));
    const TempFolder folder;
    const Finished damaged = tuned(folder.put("table.yaml", "gpu: A\nproducts: 3\n"));
    CHECK(damaged.code == 2);
    CHECK(contains(damaged.err, "table.yaml:"));
  }
}
