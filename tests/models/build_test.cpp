#include <cmath>

#include <doctest/doctest.h>

#include "core/error.h"
#include "tiny.h"

using namespace fovea;
using namespace fovea::test;
using models::ModelConfig;

namespace {

std::vector<std::string> paths_of(const ModelConfig& config) {
  std::vector<std::string> out;
  models::build(config)->each_parameter(
      [&](const std::string& path, nn::Parameter&) { out.push_back(path); });
  return out;
}

ModelConfig gpt2(int layers, int width, int heads) {
  ModelConfig config;
  config.n_layer = layers;
  config.n_embd = width;
  config.n_head = heads;
  config.block_size = 1024;
  config.vocab_size = 50257;
  return with_attention(config);
}

}  // namespace

TEST_CASE("GPT-2 has the published parameter counts, laid out on meta") {
  World world(Precision::bf16_mixed, kMeta);
  const auto model = models::build(gpt2(12, 768, 12));
  const optim::ParameterStore store(world.ctx, *model, optim::StoreMode::train);
  CHECK(store.parameters() == 124439808);
  CHECK(models::parameter_count(*model) == 124439808);
  CHECK(models::parameter_count(*models::build(gpt2(24, 1024, 16))) == 354823168);
  CHECK(models::parameter_count(*models::build(gpt2(36, 1280, 20))) == 774030080);
  CHECK(models::parameter_count(*models::build(gpt2(48, 1600, 25))) == 1557611200);
}

TEST_CASE("a GPT-2 style model has these paths, and its head is an alias") {
  ModelConfig config = gpt2_style();
  config.n_layer = 1;
  config = with_attention(config);
  CHECK(paths_of(config) ==
        std::vector<std::string>{
            "wte.weight", "wpe.weight", "blocks.0.norm1.weight", "blocks.0.norm1.bias",
            "blocks.0.attn.qkv.weight", "blocks.0.attn.qkv.bias", "blocks.0.attn.proj.weight",
            "blocks.0.attn.proj.bias", "blocks.0.norm2.weight", "blocks.0.norm2.bias",
            "blocks.0.mlp.fc.weight", "blocks.0.mlp.fc.bias", "blocks.0.mlp.proj.weight",
            "blocks.0.mlp.proj.bias", "norm_f.weight", "norm_f.bias"});
  CHECK(models::build(config)->aliases() ==
        std::map<std::string, std::string>{{"head.weight", "wte.weight"}});
}

TEST_CASE("a Llama style model has these paths and shapes") {
  ModelConfig config = llama_style();
  config.n_layer = 1;
  config = with_attention(config);
  std::map<std::string, std::string> shapes;
  models::build(config)->each_parameter(
      [&](const std::string& path, nn::Parameter& p) { shapes[path] = p.shape.str(); });
  CHECK(shapes == std::map<std::string, std::string>{{"wte.weight", "[11,12]"},
                                                     {"blocks.0.norm1.weight", "[12]"},
                                                     {"blocks.0.attn.q_norm.weight", "[4]"},
                                                     {"blocks.0.attn.k_norm.weight", "[4]"},
                                                     {"blocks.0.attn.qkv.weight", "[32,12]"},
                                                     {"blocks.0.attn.proj.weight", "[12,16]"},
                                                     {"blocks.0.norm2.weight", "[12]"},
                                                     {"blocks.0.mlp.gate_up.weight", "[40,12]"},
                                                     {"blocks.0.mlp.proj.weight", "[12,20]"},
                                                     {"norm_f.weight", "[12]"},
                                                     {"head.weight", "[11,12]"}});
}

TEST_CASE("initialisation: norms 1, biases 0, residual projections scaled by 1/sqrt(2 n_layer)") {
  const auto model = models::build(gpt2(12, 768, 12));
  for (const nn::Parameter* p : model->parameters()) {
    const bool weight = p->path.ends_with(".weight");
    if (p->path.find("norm") != std::string::npos) {
      CHECK(p->init.kind == (weight ? nn::Init::Kind::ones : nn::Init::Kind::zeros));
    } else if (!weight) {
      CHECK(p->init.kind == nn::Init::Kind::zeros);
    } else {
      const double std = p->path.ends_with("proj.weight") ? 0.02 / std::sqrt(24.0) : 0.02;
      CHECK(p->init.value == doctest::Approx(std).epsilon(1e-12));
    }
  }
}

TEST_CASE(
    "models that differ in attention start with the same embeddings and feed-forward weights") {
  ModelConfig grouped = gpt2_style();
  grouped.n_head = 4;
  grouped.n_kv_head = 1;
  grouped.qk_norm = true;
  Lm a(gpt2_style()), b(grouped);
  int compared = 0;
  for (const nn::Parameter* p : a.model->parameters()) {
    if (p->path.find("attn") != std::string::npos) continue;
    CHECK(p->master.values() == b.parameter(p->path).master.values());
    ++compared;
  }
  CHECK(compared == 20);
}

TEST_CASE("sizes that do not fit together are refused with both numbers") {
  const auto refused = [](auto change) {
    ModelConfig config = gpt2_style();
    change(config);
    models::build(config);
  };
  CHECK_THROWS_WITH_AS(
      refused([](ModelConfig& c) { c.n_head = 5; }),
      "model.n_embd is 12, but must be a multiple of model.n_head 5, or give model.head_dim",
      ConfigError);
  CHECK_THROWS_WITH_AS(refused([](ModelConfig& c) { c.n_head = 4, c.n_kv_head = 3; }),
                       "model.n_kv_head is 3, but must divide model.n_head 4", ConfigError);
  CHECK_THROWS_WITH_AS(
      refused([](ModelConfig& c) { c.position = models::Position::rope, c.rope.width = 5; }),
      "model.rope.width is 5, but must be even and at most the head width 6", ConfigError);
  CHECK_THROWS_WITH_AS(refused([](ModelConfig& c) { c.attention.pop_back(); }),
                       "model.attention: 1 choices for 2 layers", ConfigError);
  CHECK_THROWS_WITH_AS(refused([](ModelConfig& c) { c.attention[1].kind = "standart"; }),
                       "model.attention.kind: there is no 'standart'; the nearest is 'standard'",
                       ConfigError);
  CHECK_THROWS_AS(refused([](ModelConfig& c) { c.vocab_size = 0; }), ConfigError);
}

TEST_CASE("useful training FLOPs are 6 a matmul weight and token, and attention's") {
  const auto model = models::build(gpt2(12, 768, 12));
  // Twelve blocks of 12 C^2 and the tied head; embeddings are looked up, not multiplied.
  const double weights = 12.0 * 12 * 768 * 768 + 50257.0 * 768;
  CHECK(static_cast<double>(model->matmul_parameters()) == weights);
  const models::TrainFlops one = models::train_flops(*model, 1, 1024);
  const models::TrainFlops four = models::train_flops(*model, 4, 1024);
  CHECK(four.useful == doctest::Approx(4 * one.useful).epsilon(1e-12));
  // Half of N^2 pairs are visible; two products of C a pair forward, five backward, 2 FLOPs each.
  const double attention = 12 * (2 + 5) * 2 * (1024.0 * 1025 / 2) * 768;
  CHECK(one.useful - 6 * weights * 1024 == doctest::Approx(attention).epsilon(1e-9));
  CHECK(one.executed >= one.useful);
  const models::TrainFlops again = models::train_flops(*model, 1, 1024, true);
  CHECK(again.useful == one.useful);
  CHECK(again.executed > one.executed + 2 * 12.0 * 12 * 768 * 768 * 1024);
}
