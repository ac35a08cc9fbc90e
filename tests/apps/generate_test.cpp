// fovea generate, as a user calls it.

#include <csignal>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "core/cuda_runtime.h"
#include "core/file.h"
#include "data/temp_folder.h"
#include "process.h"
#include "skip.h"

using namespace fovea;
using namespace fovea::test;

namespace {

std::string stories() {
  return test_data("models/stories260K/stories260K.bin");
}

Finished generate(const std::string& model, std::vector<std::string> rest) {
  rest.insert(rest.begin(), {"generate", model});
  return run_fovea(rest);
}

std::string trained(const TempFolder& folder, const std::string& tokenizer) {
  std::string text;
  for (int i = 0; i < 300; ++i)
    text += "abc def\n";  // each character tells the next
  const std::string config =
      folder.put("run.yaml", "data: {kind: text, tokenizer: " + tokenizer +
                                 ", path: " + folder.put("text.txt", text) +
                                 "}\nmodel: {n_layer: 1, n_head: 2, n_embd: 32, block_size: 32}\n"
                                 "train: {max_steps: 60, global_batch_size: 8}\n"
                                 "optim: {lr: 0.01}\nout_dir: " +
                                 (folder / "run") + "\n");
  const Finished run = run_fovea({"train", config});
  CHECK(run.code == 0);
  return folder / "run";
}

}  // namespace

TEST_SUITE("end to end") {
  TEST_CASE("stories260K tells its published story, byte for byte") {
    if (stories().empty()) FOVEA_SKIP("no models data");
    const std::string tokenizer = test_data("models/stories260K/tok512.bin");
    const Finished run =
        generate(stories(), {"--tokenizer", tokenizer, "--greedy", "--max-tokens", "200"});
    CHECK(run.code == 0);
    CHECK(run.out == read_file(test_data("models/stories260K/expected_greedy_200steps.txt")));
    CHECK(run.err.empty());
    for (const std::vector<std::string>& same :
         {std::vector<std::string>{"--temperature", "0"}, {"--top-k", "1"}, {"--threads", "2"}}) {
      std::vector<std::string> call{"--tokenizer", tokenizer, "--max-tokens", "200"};
      call.insert(call.end(), same.begin(), same.end());
      if (same[0] == "--threads") call.emplace_back("--greedy");
      CHECK(generate(stories(), call).out == run.out);
    }
  }

  TEST_CASE("a seed gives a story, another seed another one") {
    if (stories().empty()) FOVEA_SKIP("no models data");
    const auto story = [](std::vector<std::string> rest) {
      rest.insert(rest.end(), {"--max-tokens", "60", "--top-p", "0.9"});
      return generate(stories(), rest).out;
    };
    const std::string one = story({"Once", "--seed", "1"});
    CHECK(one == story({"Once", "--seed", "1", "--threads", "2"}));
    CHECK(one == story({"--prompt", "Once", "--seed", "1"}));
    CHECK(one != story({"Once", "--seed", "2"}));
    CHECK("Once" + one == story({"Once", "--seed", "1", "--echo"}));
    const std::string two = story({"Once", "--seed", "1", "--samples", "2"});
    CHECK(contains(two, "==> sample 1 of 2 <==\n" + one + "\n\n==> sample 2 of 2 <==\n"));
  }

  TEST_CASE("the prompt comes from an argument, a file or standard input") {
    if (stories().empty()) FOVEA_SKIP("no models data");
    const TempFolder folder;
    const std::string file = folder.put("prompt", "Lily saw");
    const std::vector<std::string> short_one{"--greedy", "--max-tokens", "8"};
    const auto with = [&](std::vector<std::string> rest) {
      rest.insert(rest.end(), short_one.begin(), short_one.end());
      return generate(stories(), rest).out;
    };
    const std::string expected = with({"Lily saw"});
    CHECK(with({"--prompt-file", file}) == expected);
    const std::string call =
        std::string(FOVEA_BINARY) + " generate " + stories() + " --greedy --max-tokens 8";
    CHECK(run_program({"sh", "-c", "printf 'Lily saw' | " + call}).out == expected);
    CHECK(run_program({"sh", "-c", "printf 'Lily saw' | " + call + " -"}).out == expected);
  }

  TEST_CASE("a stop text ends the story before it") {
    if (stories().empty()) FOVEA_SKIP("no models data");
    const Finished run =
        generate(stories(), {"--greedy", "--json", "--stop", "played", "--stop", "red ball"});
    const auto record = nlohmann::json::parse(run.out);
    const auto& sample = record.at("samples").at(0);
    CHECK(sample.at("ending") == "stop");
    const std::string text = sample.at("text");
    CHECK(text.ends_with("One day, she saw a big, "));
    CHECK(record.at("prompt_tokens") == 1);
    CHECK(sample.at("tokens") == sample.at("ids").size());
  }

  TEST_CASE("GPT-2's positions end, and its text goes on") {
    const std::string model = test_data("models/tiny_gpt2");
    if (model.empty()) FOVEA_SKIP("no models data");
    const Finished run = generate(model, {"low", "--ignore-eos", "--max-tokens", "1030", "--json"});
    CHECK(run.code == 0);
    CHECK(nlohmann::json::parse(run.out).at("samples").at(0).at("tokens") == 1030);
    CHECK(contains(run.err, "longer than model.block_size (1024)"));
    CHECK(run.err.find("block_size") == run.err.rfind("block_size"));
    const auto ended = nlohmann::json::parse(generate(model, {"--json"}).out);
    CHECK(ended.at("samples").at(0).at("ending") == "end_of_text");
  }

  TEST_CASE("a run continues texts with its own tokenizer") {
    for (const std::string tokenizer : {"byte", "char", "word"}) {
      const TempFolder folder;
      const std::string run = trained(folder, tokenizer);
      CHECK(generate(run, {"abc", "--greedy", "--stop", "\n"}).out ==
            (tokenizer == "word" ? "def " : " def"));
      // Without a prompt the text begins as a line does.
      CHECK(generate(run, {"--greedy", "--max-tokens", "7"})
                .out.starts_with(tokenizer == "word" ? " abc def \n" : "abc def"));
    }
  }

  TEST_CASE("a model is continued where --device says") {
    const TempFolder folder;
    const std::string run = trained(folder, "byte");
    const Finished here = generate(run, {"--greedy", "--max-tokens", "8", "--prompt", "abc"});
    const Finished cpu =
        generate(run, {"--greedy", "--max-tokens", "8", "--prompt", "abc", "--device", "cpu"});
    CHECK(cpu.code == 0);
    CHECK(cpu.out == here.out);
    CHECK(generate(run, {"--device", "gpu", "--prompt", "abc"}).code == 2);
    if (cuda::device_count() > 0) FOVEA_SKIP("there is a CUDA device");
    const Finished cuda = generate(run, {"--device", "cuda", "--prompt", "abc"});
    CHECK(cuda.code == 8);
    CHECK(contains(cuda.err, "--device"));
  }

  TEST_CASE("a stop text is one argument, and the prompt may follow it") {
    const TempFolder folder;
    const std::string run = trained(folder, "byte");
    const auto record = nlohmann::json::parse(
        generate(run, {"--stop", "zq", "--stop", "\n", "abc", "--greedy", "--json"}).out);
    CHECK(record.at("prompt") == "abc");
    CHECK(record.at("samples").at(0).at("text") == " def");
    const Finished none = generate(run, {"abc", "--stop=", "--max-tokens", "3"});
    CHECK(none.code == 2);
    CHECK(contains(none.err, "fovea generate: --stop= has no value"));
  }

  TEST_CASE("a checkpoint without a manifest is exit code 7") {
    const TempFolder folder;
    trained(folder, "byte");
    const std::string checkpoint = folder / "run/ckpt/step_00000060";
    REQUIRE(std::filesystem::remove(checkpoint + "/manifest.json"));
    const Finished run = generate(checkpoint, {"abc"});
    CHECK(run.code == 7);
    CHECK(contains(run.err, "manifest.json: is missing, so the checkpoint is not whole"));
  }

  TEST_CASE("bad values, two prompts and missing models say what is wrong") {
    if (stories().empty()) FOVEA_SKIP("no models data");
    using Call = std::vector<std::string>;
    for (const Call& call :
         {Call{"--temperature", "-1"}, Call{"--temperature", "nan"}, Call{"--temperature", "warm"},
          Call{"--top-p", "1.5"}, Call{"--top-k", "-3"}, Call{"--max-tokens", "0"},
          Call{"--samples", "0"}, Call{"--seed", "x"}, Call{"--stop", ""},
          Call{"a", "--prompt", "b"}, Call{"a", "b"}, Call{"--greedy", "--temperature", "0.5"},
          Call{"--top-q", "1"}}) {
      const Finished run = generate(stories(), call);
      CHECK_MESSAGE(run.code == 2, call[0]);
      CHECK_MESSAGE(contains(run.err, "error: fovea generate: "), call[0]);
      CHECK(run.out.empty());
    }
    const TempFolder folder;
    CHECK(generate(folder / "none", {}).code == 7);
    CHECK(generate(stories(), {"--prompt-file", folder / "none"}).code == 3);
    CHECK(generate(stories(), {"--tokenizer", folder / "none"}).code == 3);
    std::filesystem::copy(stories(), folder / "alone.bin");
    const Finished alone = generate(folder / "alone.bin", {});
    CHECK(alone.code == 3);
    CHECK(contains(alone.err, "--tokenizer"));
    const std::string larger = test_data("gpt2-bpe");
    if (larger.empty()) FOVEA_SKIP("no gpt2-bpe data");
    const Finished mismatched = generate(stories(), {"--tokenizer", larger});
    CHECK(mismatched.code == 2);
    CHECK(contains(mismatched.err, "they do not belong together"));
  }

  TEST_CASE("an interrupted story is as whole as it got") {
    const std::string model = test_data("models/tiny_gpt2");
    if (model.empty()) FOVEA_SKIP("no models data");
    // The note about the window says that tokens are being made.
    const Finished run =
        run_fovea({"generate", model, "low", "--ignore-eos", "--max-tokens", "1000000", "--json"},
                  {"block_size", [](pid_t id) { ::kill(id, SIGINT); }});
    CHECK(run.code == 75);
    const auto record = nlohmann::json::parse(run.out);
    CHECK(record.at("ok") == false);
    CHECK(record.at("samples").at(0).at("ending") == "signal");
    CHECK(record.at("samples").at(0).at("tokens") >= 1024 - 3);
  }
}
