// A run with another attention method in every layer, from the text of its configuration.

#include <doctest/doctest.h>

#include "core/error.h"
#include "data/safetensors.h"
#include "tiny_run.h"
#include "train/dry_run.h"

using namespace fovea;
using namespace fovea::train;
using namespace fovea::test;

namespace {

const std::vector<std::string> kMixed = {
    "model.n_layer=4",
    "model.attention=[{kind: bigbird, block: 2, random_blocks: 1}, {kind: longformer, window: 4, "
    "global_tokens: [0]}]",
    "model.attention_dropout=0.1"};

std::vector<std::string> with(std::vector<std::string> more) {
  more.insert(more.begin(), kMixed.begin(), kMixed.end());
  return more;
}

}  // namespace

TEST_CASE("a list of methods repeats over the layers, and its resolved text reads back") {
  const RunConfig run = tiny_config("a", with({}));
  REQUIRE(run.model.attention.size() == 4);
  CHECK(run.model.attention[2].kind == "bigbird");
  CHECK(run.model.attention[2].options.get_int("block") == 2);
  CHECK(run.model.attention[3].options.find("global_tokens")->items().size() == 1);
  const RunConfig again = RunConfig::from(config::parse(run.resolved.yaml(), "again.yaml"));
  CHECK(again.resolved.yaml() == run.resolved.yaml());
  CHECK(again.result_hash() == run.result_hash());
}

TEST_CASE("a dry run of many methods counts the pairs that they see") {
  const DryRun run = dry_run(tiny_config("a", with({})));
  CHECK(run.step_flops >= run.useful_flops);
  CHECK(run.step_flops <= run.executed_flops);
}

TEST_CASE("a method that is bound to a length is not evaluated beyond it") {
  const auto refused = [](const std::string& attention) -> std::string {
    const TemporaryFolder folder;
    overwrite(folder.path("a.txt"), "some text\n");
    try {
      tiny_config("a", {"data={kind: text, path: " + folder.path("a.txt") + "}",
                        "model.position=rope", "eval.context=17", "model.attention=" + attention});
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  CHECK(refused("bigbird").find(
            "eval.context is 17, but model.attention.kind bigbird is bound to model.block_size "
            "(16)") != std::string::npos);
  CHECK(refused("longformer").empty());
}

TEST_CASE(
    "a run with many methods learns, keeps its random blocks, and resumes to the same bytes") {
  const TemporaryFolder temporary;
  const std::string straight = temporary.path("straight"), stopped = temporary.path("stopped");
  run_tiny(straight, with({}));
  run_tiny(stopped, with({"train.max_steps=7"}));
  const auto blocks = [](const std::string& run) {
    return data::SafetensorsFile(newest(run) + "/model.safetensors")
        .read("blocks.2.attn.method.blocks")
        .values();
  };
  const std::vector<double> drawn = blocks(stopped);
  CHECK(drawn.size() == 2 * 8);
  CHECK(drawn.back() >= 1);
  run_tiny(stopped, with({}));
  CHECK(blocks(stopped) == drawn);
  CHECK(weights(stopped) == weights(straight));
  CHECK(metrics(stopped) == metrics(straight));
}
