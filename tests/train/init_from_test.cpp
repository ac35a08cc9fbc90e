// Runs that start from weights of elsewhere, and parameters that training leaves alone.

#include <map>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "core/error.h"
#include "foreign_model.h"
#include "tiny_run.h"
#include "train/checkpoint.h"
#include "train/evaluate.h"
#include "train/trainer.h"

using namespace fovea;
using namespace fovea::test;
using namespace fovea::train;
namespace fs = std::filesystem;

namespace {

std::map<std::string, std::vector<double>> tensors_of(const std::string& file) {
  std::map<std::string, std::vector<double>> out;
  for (const auto& [name, tensor] : open_safetensors(file))
    out.emplace(name, tensor.read().values());
  return out;
}

// A run that takes its model from `path`.
RunConfig config_from(const std::string& path, const std::string& out_dir,
                      std::vector<std::string> overrides = {}) {
  log::console(false);
  config::Node node = config::parse(R"(
data: {kind: markov, seq_len: 4, markov: {vocab: 7, train_examples: 64, test_examples: 8}}
train: {global_batch_size: 4, micro_batch_size: 2, max_steps: 6, threads: 1}
sched: {kind: constant}
)",
                                    "fine.yaml");
  overrides.insert(overrides.begin(), {"train.init_from=" + path, "out_dir=" + out_dir});
  config::override_with(node, overrides);
  return RunConfig::from(node);
}

std::string message_of(const std::string& path, const std::vector<std::string>& overrides) {
  try {
    config_from(path, "unused", overrides);
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "";
}

struct Gpt2Folder : TemporaryFolder {
  Gpt2Folder() { tiny_gpt2().write(*this, gpt2_json()); }
};

}  // namespace

TEST_CASE("keys of the model that are not given are taken from train.init_from") {
  const Gpt2Folder foreign;
  const RunConfig config = config_from(foreign.path(), "unused", {"model.dropout=0.25"});
  CHECK(config.model.n_layer == 1);
  CHECK(config.model.n_head == 2);
  CHECK(config.model.n_embd == 4);
  CHECK(config.model.block_size == 5);
  CHECK(config.model.vocab_size == 7);
  CHECK(config.model.mlp_dim == 16);
  CHECK(config.model.dropout == 0.25);
  CHECK(config.resolved.get_int("model.n_layer") == 1);
  const TemporaryFolder llama;
  tiny_llama().write(llama, llama_json());
  const RunConfig other = config_from(llama.path(), "unused", {"model.block_size=8"});
  CHECK(other.model.norm == models::Norm::rms);
  CHECK(other.model.mlp == models::Mlp::swiglu);
  CHECK(other.model.position == models::Position::rope);
  CHECK(other.model.rope.base == 500000);
  CHECK(other.model.block_size == 8);  // rotation does not end anywhere
}

TEST_CASE("keys that are given must agree, and a disagreement names both sides") {
  const Gpt2Folder foreign;
  CHECK(message_of(foreign.path(), {"model.n_layer=1", "model.n_kv_head=0"}).empty());
  CHECK(message_of(foreign.path(), {"model.n_layer=2"}) ==
        "command line: model.n_layer=2: model.n_layer is 2, but train.init_from (" +
            foreign.path() + ") has 1");
  const std::string many =
      message_of(foreign.path(), {"model.norm=rms", "model.block_size=9", "model.bias=false"});
  for (const char* part :
       {"model.norm is rms, but", "model.block_size is 9, but", "model.bias is false, but"}) {
    CHECK_MESSAGE(many.find(part) != std::string::npos, part);
  }
}

TEST_CASE("a resolved configuration is read without the weights, and is the same") {
  const TemporaryFolder elsewhere;
  RunConfig config;
  {
    const Gpt2Folder foreign;
    config = config_from(foreign.path(), "unused");
  }
  CHECK_FALSE(fs::exists(config.train.init_from));
  const RunConfig again = RunConfig::from(config.resolved);
  CHECK(again.resolved.yaml() == config.resolved.yaml());
  CHECK(again.result_hash() == config.result_hash());
  CHECK_THROWS_WITH_AS(config_from(config.train.init_from, "unused"),
                       doctest::Contains("does not exist"), CheckpointError);
}

TEST_CASE("a run starts from the foreign weights, and resumes and evaluates without them") {
  const TemporaryFolder runs;
  RunConfig config;
  {
    const Gpt2Folder foreign;
    config = config_from(foreign.path(), runs.path("still"), {"optim.lr=0"});
    train::train(config);
    const auto weights = tensors_of(newest(runs.path("still")) + "/model.safetensors");
    CHECK(weights.at("wte.weight") ==
          tensors_of(foreign.path("model.safetensors")).at("wte.weight"));
    config = config_from(foreign.path(), runs.path("moving"));
    train::train(config);
  }
  CHECK(evaluate(runs.path("moving")).step == 6);
  config.train.max_steps = 8;
  config.resolved.set("train.max_steps", config::Node::scalar("8", {}));
  CHECK(train::train(RunConfig::from(config.resolved)).step == 8);
}

TEST_CASE("a run starts from another run's weights and attention options, at step 0") {
  const TemporaryFolder runs;
  run_tiny(runs.path("first"));
  const auto first = tensors_of(newest(runs.path("first")) + "/model.safetensors");
  const RunConfig config = config_from(runs.path("first"), runs.path("second"),
                                       {"optim.lr=0", "data.markov.vocab=32", "data.seq_len=16"});
  CHECK(config.model.n_layer == 2);
  CHECK(config.model.vocab_size == 32);  // which the first run had left to its data
  CHECK(config.model.dropout == 0.1);
  const TrainResult result = train::train(config);
  CHECK(result.step == 6);
  CHECK(tensors_of(result.checkpoint + "/model.safetensors") == first);
}

TEST_CASE("projections for global tokens start as copies of those of a model without them") {
  const TemporaryFolder runs;
  run_tiny(runs.path("first"));
  const auto first = tensors_of(newest(runs.path("first")) + "/model.safetensors");
  const RunConfig config =
      config_from(runs.path("first"), runs.path("second"),
                  {"optim.lr=0", "data.markov.vocab=32", "data.seq_len=16",
                   "model.attention={kind: longformer, window: 8, global_tokens: [0]}"});
  const auto second = tensors_of(train::train(config).checkpoint + "/model.safetensors");
  for (const auto& [name, value] : first) {
    std::vector<double> wanted = value;
    if (name.find(".attn.qkv.") != std::string::npos)
      wanted.insert(wanted.end(), value.begin(), value.end());
    CAPTURE(name);
    REQUIRE(second.contains(name));
    CHECK(second.at(name) == wanted);
  }
}

TEST_CASE("weights of another model are refused when they are loaded") {
  const TemporaryFolder runs;
  const Gpt2Folder foreign;
  const ImportedModel source = import_model(foreign.path());
  Trainer other(tiny_config(runs.path("run")), kCpu);
  CHECK_THROWS_WITH_AS(other.start_from(source),
                       doctest::Contains("model.n_layer is 2, but train.init_from"), ConfigError);
}

TEST_CASE("frozen parameters stay to the bit, are saved, and are there again after a resume") {
  const TemporaryFolder runs;
  const std::vector<std::string> frozen{"train.freeze=[wte.*, blocks.0.*]"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), frozen.begin(), frozen.end());
    return more;
  };
  run_tiny(runs.path("start"), with({"train.max_steps=1", "optim.lr=0"}));
  run_tiny(runs.path("whole"), with({}));
  run_tiny(runs.path("cut"), with({"train.max_steps=5"}));
  run_tiny(runs.path("cut"), with({}));
  CHECK(weights(runs.path("cut")) == weights(runs.path("whole")));
  CHECK(metrics(runs.path("cut")) == metrics(runs.path("whole")));
  const auto before = tensors_of(newest(runs.path("start")) + "/model.safetensors");
  const auto after = tensors_of(newest(runs.path("whole")) + "/model.safetensors");
  REQUIRE(before.size() == after.size());
  int still = 0;
  for (const auto& [name, values] : before) {
    const bool is_frozen = name.starts_with("wte.") || name.starts_with("blocks.0.");
    INFO(name);
    CHECK((after.at(name) == values) == is_frozen);
    still += is_frozen ? 1 : 0;
  }
  CHECK(still > 5);
  const auto moments = tensors_of(newest(runs.path("whole")) + "/optimizer.safetensors");
  CHECK_FALSE(moments.contains("first/wte.weight"));
  CHECK(moments.contains("first/blocks.1.attn.qkv.weight"));
}

TEST_CASE("freezing what does not exist, or everything, is refused") {
  const TemporaryFolder runs;
  CHECK_THROWS_WITH_AS(run_tiny(runs.path("a"), {"train.freeze=[block.0.*]"}),
                       doctest::Contains("train.freeze: 'block.0.*' matches no parameter"),
                       ConfigError);
  CHECK_THROWS_WITH_AS(run_tiny(runs.path("b"), {"train.freeze=['*']"}),
                       doctest::Contains("train.freeze leaves nothing to train"), ConfigError);
}
