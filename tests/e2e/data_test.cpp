// The verbs that prepare data and look into it.

#include <filesystem>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "data/temp_folder.h"
#include "process.h"

using namespace fovea::test;

TEST_SUITE("end to end") {
  TEST_CASE("text is prepared, inspected, and trained on") {
    const TempFolder folder;
    std::string text;
    for (int i = 0; i < 500; ++i)
      text += "line " + std::to_string(i * i) + "\r\n";
    folder.put("text/train/a.txt", text);
    folder.put("text/validation/b.txt", "line 49 line 81\n");
    const std::vector<std::string> prepare = {"data",  "prepare",    folder / "text",
                                              "--out", folder / "x", "--tokenizer",
                                              "char",  "--jobs",     "2"};
    const Finished made = run_fovea(prepare);
    CHECK(made.code == 0);
    CHECK(contains(made.out, "train: "));
    CHECK(contains(made.out, "500 CR before LF"));
    CHECK(contains(made.out, "Wrote " + (folder / "x") + "."));
    CHECK(contains(made.err, "validation: done"));
    std::vector<std::string> again = prepare;
    again.push_back("--json");
    const auto record = nlohmann::json::parse(run_fovea(again).out);
    CHECK(record.at("nothing_to_do") == true);
    CHECK(record.at("splits").at(0).at("tokenizer") == "char");
    CHECK(record.at("splits").at(1).at("bytes") == 16);

    const Finished shown = run_fovea({"data", "inspect", folder / "x", "--samples", "1"});
    CHECK(shown.code == 0);
    CHECK(contains(shown.out, "line 0\\x0aline 1\\x0aline 4"));
    const auto report =
        nlohmann::json::parse(run_fovea({"data", "inspect", folder / "x", "--json"}).out);
    CHECK(report.at("splits").at(0).at("documents") == 1);

    const std::string config =
        folder.put("run.yaml", "data: {kind: tokens, pack: documents, path: " + (folder / "x") +
                                   "}\nmodel: {n_layer: 1, n_head: 1, n_embd: 16, block_size: 16}\n"
                                   "train: {max_steps: 2, global_batch_size: 4}\nout_dir: " +
                                   (folder / "run") + "\n");
    const Finished trained = run_fovea({"train", config});
    CHECK(trained.code == 0);
    CHECK(contains(trained.err, "char tokens of 1 documents"));
    std::filesystem::resize_file(folder / "x/train/tokens.bin", 10);
    CHECK(run_fovea({"data", "inspect", folder / "x"}).code == 3);
  }

  TEST_CASE("what cannot be prepared says why") {
    const TempFolder folder;
    CHECK(run_fovea({"data", "prepare", folder / "none", "--out", folder / "x"}).code == 3);
    const std::string text = folder.put("a.txt", "text\n");
    const Finished bad =
        run_fovea({"data", "prepare", text, "--out", folder / "x", "--val-fraction", "q"});
    CHECK(bad.code == 2);
    CHECK(contains(bad.err, "--val-fraction: 'q' is not a number"));
    CHECK(run_fovea({"data", "prepare", text}).code == 2);
    CHECK(run_fovea({"data", "inspect", folder / "none"}).code == 3);
  }
}
