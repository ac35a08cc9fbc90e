// What the command line says when it is used wrongly, and that --json is one record.

#include <algorithm>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "core/cuda_runtime.h"
#include "data/temp_folder.h"
#include "process.h"
#include "skip.h"

using namespace fovea::test;

namespace {

// A config that trains at once, with one line of the test's.
std::string config_with(const TempFolder& folder, const std::string& line) {
  return folder.put("run.yaml", "task: lm\ndata: {kind: markov}\n" + line +
                                    "\ntrain: {max_steps: 1, global_batch_size: 2}\nout_dir: " +
                                    folder.path() + "/run\n");
}

std::int64_t lines_in(const std::string& text) {
  return std::count(text.begin(), text.end(), '\n');
}

}  // namespace

TEST_SUITE("end to end") {
  TEST_CASE("without a verb the help goes to stderr and the exit code is 2") {
    const Finished run = run_fovea({});
    CHECK(run.code == 2);
    CHECK(run.out.empty());
    for (const char* verb : {"train", "eval", "check", "list", "inspect", "data", "doctor"}) {
      CHECK(contains(run.err, verb));
    }
  }

  TEST_CASE("check attention refuses what it would not use, and a GPU that is not there") {
    const Finished run = run_fovea({"check", "attention", "standard", "--precision", "fp64"});
    CHECK(run.code == 2);
    CHECK(contains(run.err, "--precision and --kernel need --input"));
    const Finished rows = run_fovea({"check", "attention", "standard", "--rows", "--input", "x"});
    CHECK(rows.code == 2);
    if (fovea::cuda::device_count() > 0) FOVEA_SKIP("there is a CUDA device");
    const Finished gpu = run_fovea({"check", "attention", "standard", "--device", "cuda"});
    CHECK(gpu.code == 8);
    CHECK(contains(gpu.err, "--device is cuda, but " + fovea::cuda::why_none()));
    CHECK(contains(gpu.err, "--device cpu"));
  }

  TEST_CASE("an unknown verb is answered with the nearest one") {
    const Finished run = run_fovea({"trian"});
    CHECK(run.code == 2);
    CHECK(run.err == "error: fovea: there is no verb 'trian'; did you mean train?\n");
    CHECK(contains(run_fovea({"list", "opps"}).err, "did you mean ops?"));
  }

  TEST_CASE("an unknown option is answered with the nearest one") {
    const Finished run = run_fovea({"train", "x.yaml", "--dryrun"});
    CHECK(run.code == 2);
    CHECK(contains(run.err, "unexpected argument '--dryrun'; did you mean --dry-run?"));
  }

  TEST_CASE("every verb explains itself on stdout") {
    for (const char* verb : {"train", "eval", "inspect", "doctor", "check", "list", "data"}) {
      const Finished run = run_fovea({verb, "--help"});
      CHECK(run.code == 0);
      CHECK_MESSAGE(contains(run.out, std::string("fovea ") + verb), verb);
      CHECK(run.err.empty());
    }
    CHECK(contains(run_fovea({"--help"}).out, "usage: fovea VERB"));
    CHECK(contains(run_fovea({"--version"}).out, "fovea "));
  }

  TEST_CASE("a typo in a config key is answered with file, line, column and the nearest key") {
    const TempFolder folder;
    const std::string file = config_with(folder, "model:\n  n_layers: 2");
    const Finished run = run_fovea({"train", file});
    CHECK(run.code == 2);
    CHECK(contains(run.err, file + ":4:3: "));
    CHECK(contains(run.err, "n_layers"));
    CHECK(contains(run.err, "n_layer"));
    CHECK_FALSE(std::filesystem::exists(folder / "run"));
  }

  TEST_CASE("a wrong type and a value out of range are both reported, with their places") {
    const TempFolder folder;
    const std::string file = config_with(folder, "model:\n  n_layer: two\n  dropout: 1.5");
    const Finished run = run_fovea({"train", file});
    CHECK(run.code == 2);
    CHECK(contains(run.err, file + ":4:"));
    CHECK(contains(run.err, file + ":5:"));
    CHECK(lines_in(run.err) == 2);
  }

  TEST_CASE("a mistake in an override names the argument") {
    const TempFolder folder;
    const std::string file = config_with(folder, "seed: 1");
    const Finished run = run_fovea({"train", file, "model.n_layr=2"});
    CHECK(run.code == 2);
    CHECK(contains(run.err, "model.n_layr"));
    CHECK(contains(run.err, "model.n_layer"));
    CHECK(run_fovea({"train", file, "--model.n_layer=2"}).code == 2);
    CHECK(contains(run_fovea({"train", file, "model.n_layer"}).err, "key=value"));
  }

  TEST_CASE("a config file that is not there ends with 2, data that is not there with 3") {
    const TempFolder folder;
    const Finished config = run_fovea({"train", folder / "none.yaml"});
    CHECK(config.code == 2);
    CHECK(contains(config.err, folder / "none.yaml"));
    const std::string file = folder.put(
        "text.yaml", "task: lm\ntrain: {max_steps: 1}\nout_dir: " + folder.path() + "/run\n");
    const Finished data = run_fovea({"train", file, "data.path=" + (folder / "books")});
    CHECK(data.code == 3);
    CHECK(contains(data.err, folder / "books"));
  }

  TEST_CASE("a broken checkpoint ends with 7 and the file's name") {
    const TempFolder folder;
    folder.put("step_00000001/manifest.json", "{}");
    const Finished run = run_fovea({"eval", folder / "step_00000001"});
    CHECK(run.code == 7);
    CHECK(contains(run.err, folder / "step_00000001"));
    CHECK(run_fovea({"eval", folder / "nothing"}).code == 7);
  }

  TEST_CASE("--json prints one record, of success and of failure") {
    const Finished good = run_fovea({"list", "tasks", "--json"});
    REQUIRE(good.code == 0);
    CHECK(lines_in(good.out) == 1);
    const auto record = nlohmann::json::parse(good.out);
    CHECK(record["ok"] == true);
    CHECK(record["tasks"].size() >= 2);

    const Finished bad = run_fovea({"train", "none.yaml", "--json"});
    CHECK(bad.code == 2);
    CHECK(lines_in(bad.out) == 1);
    const auto failure = nlohmann::json::parse(bad.out);
    CHECK(failure["ok"] == false);
    CHECK(failure["error"]["code"] == 2);
    CHECK(contains(bad.err, failure["error"]["message"].get<std::string>()));
  }

  TEST_CASE("bytes that are not UTF-8 do not break the record") {
    const Finished run = run_fovea({"inspect", "no\xFFsuch", "--json"});
    CHECK(run.code == 3);
    const auto record = nlohmann::json::parse(run.out);
    CHECK(contains(record["error"]["message"].get<std::string>(), "no\xEF\xBF\xBDsuch"));
  }

  TEST_CASE("fovea list ops --json names files that open") {
    const auto record = nlohmann::json::parse(run_fovea({"list", "ops", "--json"}).out);
    REQUIRE(record["ops"].size() >= 10);
    for (const auto& op : record["ops"]) {
      INFO(op["name"].get<std::string>());
      CHECK(op["cases"].get<int>() >= 1);
      for (const char* key : {"header", "autograd", "cpu", "cuda"}) {
        if (op[key].is_null()) continue;
        const std::string file = op[key];
        CHECK_MESSAGE(!file_text(std::string(FOVEA_SOURCE_DIR) + "/" + file).empty(), file);
      }
    }
  }

  TEST_CASE("a reader who goes away is no error, a full disk is") {
    const std::string fovea = FOVEA_BINARY;
    CHECK(run_program({"bash", "-c", "set -o pipefail; '" + fovea + "' list config | head -n 1"})
              .code == 0);
    const Finished full = run_program({"bash", "-c", "'" + fovea + "' list config > /dev/full"});
    CHECK(full.code == 3);
    CHECK(full.err == "error: stdout cannot be written: No space left on device\n");
  }

  TEST_CASE("doctor finds nothing missing where the tests run") {
    const Finished run = run_fovea({"doctor", "--json"});
    CHECK(run.code == 0);
    const auto record = nlohmann::json::parse(run.out);
    CHECK(record["ok"] == true);
    for (const char* key :
         {"processor", "kernels", "blas", "memory", "disk", "cuda", "libraries"}) {
      CHECK_FALSE(record[key].get<std::string>().empty());
    }
  }

  TEST_CASE("doctor's help says that missing things are listed, not failed for") {
    const Finished run = run_fovea({"doctor", "--help"});
    CHECK(run.code == 0);
    CHECK(contains(run.out, "8 only where nothing could be computed"));
  }

  TEST_CASE("check ops checks the named ops only, and knows no others") {
    const auto record = nlohmann::json::parse(run_fovea({"check", "ops", "scale", "--json"}).out);
    CHECK(record["ok"] == true);
    CHECK(record["passed"].get<int>() >= 4);
    CHECK(record["failed"] == 0);
    const Finished unknown = run_fovea({"check", "ops", "scael"});
    CHECK(unknown.code == 2);
    CHECK(contains(unknown.err, "did you mean scale?"));
  }

  TEST_CASE("check attention prints a line a method, all rows if asked, and every row as JSON") {
    const Finished table = run_fovea({"check", "attention", "linear", "standard"});
    CHECK(table.code == 0);
    CHECK(lines_in(table.out) == 4);
    CHECK(contains(table.out, "refuse"));
    CHECK(contains(table.out, " 0 failed"));
    const Finished rows = run_fovea({"check", "attention", "linear", "--rows"});
    CHECK(contains(rows.out, "ok     causal: gradient with padding"));
    const auto record =
        nlohmann::json::parse(run_fovea({"check", "attention", "linear", "--json"}).out);
    CHECK(record["ok"] == true);
    CHECK(record["device"] == "cpu");
    CHECK(record["failed"] == 0);
    CHECK(record["checks"].size() == static_cast<std::size_t>(lines_in(rows.out) - 3));
    CHECK(record["checks"][0]["family"] == "refuse");
  }

  TEST_CASE(
      "check attention refuses options that the method does not have, and files it cannot read") {
    CHECK(run_fovea({"check", "attention", "standard", "kernal=tiled"}).code == 2);
    for (const std::string option : {"kernal=tiled", "softcap=-1"})
      CHECK(run_fovea({"check", "attention", "standard", option, "--slopes"}).code == 2);
    CHECK(run_fovea({"check", "attention", "short", "dim=999"}).code == 2);
    CHECK(run_fovea({"check", "attention", "short", "dim=999", "--slopes"}).code == 2);
    CHECK(run_fovea({"check", "attention", "standrad"}).code == 2);
    const TempFolder folder;
    const Finished absent = run_fovea(
        {"check", "attention", "standard", "--input", folder / "none", "--output", folder / "out"});
    CHECK(absent.code == 3);
    CHECK(contains(absent.err, folder / "none"));
  }

  TEST_CASE("data make mqar writes the examples it says, and overwrites nothing unasked") {
    const TempFolder folder;
    const std::string file = folder / "recall.jsonl";
    REQUIRE(run_fovea({"data", "make", "mqar", file, "--count", "5", "--vocab", "128"}).code == 0);
    const std::string text = file_text(file);
    CHECK(lines_in(text) == 5);
    CHECK(nlohmann::json::parse(text.substr(0, text.find('\n')))["tokens"].size() == 64);
    const Finished again =
        run_fovea({"data", "make", "mqar", file, "--count", "6", "--vocab", "128"});
    CHECK(again.code == 3);
    CHECK(file_text(file) == text);
    CHECK(run_fovea({"data", "make", "mqar", file, "--overwrite", "--count", "6", "--vocab", "128"})
              .code == 0);
    CHECK(lines_in(file_text(file)) == 6);
  }
}
