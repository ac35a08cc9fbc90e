// Another attention method in every layer of one model.

#include <algorithm>
#include <cmath>

#include <doctest/doctest.h>

#include "config/yaml.h"
#include "models/generate.h"
#include "tiny.h"

using namespace fovea;
using namespace fovea::test;
using models::Cache;
using models::DecoderInput;
using models::ModelConfig;

namespace {

constexpr std::int64_t kTokens = 20;

ModelConfig mixed() {
  ModelConfig config = llama_style();
  config.n_layer = 5;
  config.block_size = 24;
  config.attention.clear();
  const std::pair<const char*, const char*> layers[] = {
      {"bigbird", "{block: 2, random_blocks: 1}"},
      {"longformer", "{window: 4, dilation: 2, global_tokens: [0, 5]}"},
      {"short", "dim: 2"},
      {"sparse_transformer", "{block: 4, columns: 1, combine: layers}"},
      {"standard", "{}"}};
  for (const auto& [kind, options] : layers) {
    const attention::AttentionSpec* spec = attention::find_attention(kind);
    config.attention.push_back(
        {kind, config::complete(config::parse(options, "a.yaml"), spec->options, "")});
  }
  return config;
}

std::vector<double> logits(Lm& lm, const Tensor& ids) {
  const Var hidden = lm.model->hidden(lm.ctx, {.ids = ids});
  return lm.model->head(lm.ctx, hidden).value().values();
}

}  // namespace

TEST_CASE("every layer has its own method, heads and projections") {
  Lm lm(mixed());
  const ModelConfig config = mixed();
  // 4 query heads and 2 key/value heads of width 4, 12 features: q, k, v of each.
  CHECK(lm.parameter("blocks.0.attn.qkv.weight").shape == Shape{16 + 8 + 8, 12});
  CHECK(lm.parameter("blocks.1.attn.qkv.weight").shape == Shape{2 * (16 + 8 + 8), 12});
  CHECK(lm.parameter("blocks.2.attn.qkv.weight").shape == Shape{8 + 4 + 4, 12});
  CHECK(lm.parameter("blocks.2.attn.proj.weight").shape == Shape{12, 8});
  CHECK(lm.parameter("blocks.3.attn.qkv.weight").shape == Shape{16 + 8 + 8, 12});
  std::vector<std::string> buffers;
  lm.model->each_buffer([&](const std::string& path, nn::Buffer&) { buffers.push_back(path); });
  CHECK(buffers == std::vector<std::string>{"blocks.0.attn.method.blocks"});
}

TEST_CASE("a model of many methods sees no later token") {
  Lm lm(mixed());
  const Tensor all = ids(1, kTokens, 11);
  const std::vector<double> whole = logits(lm, all);
  for (const std::int64_t n : {1, 7, 19}) {
    const std::vector<double> part = logits(lm, all.slice(1, 0, n));
    for (std::size_t i = 0; i < part.size(); ++i)
      CHECK(std::abs(part[i] - whole[i]) < 1e-5);
  }
}

TEST_CASE("a model of many methods decodes what full passes give") {
  Lm lm(mixed());
  const std::vector<std::vector<std::int32_t>> prompts{{1, 2, 3}, {7, 7, 4}, {9}};
  CHECK(models::greedy(lm.ctx, *lm.model, prompts, 12, Cache::use) ==
        models::greedy(lm.ctx, *lm.model, prompts, 12, Cache::none));
  CHECK(models::Continuation(lm.ctx, *lm.model, 1, 24, Cache::use).cached());
  CHECK_THROWS_WITH_AS(models::Continuation(lm.ctx, *lm.model, 1, 25, Cache::use),
                       "generate: up to 25 tokens, but patterns or parameters of attention bigbird "
                       "end at 24 (model.block_size)",
                       ShapeError);
}

TEST_CASE("a model of many methods has the gradients of its loss") {
  Lm lm(mixed(), Precision::fp64);
  const DecoderInput in{.ids = ids(2, kTokens, 11)};
  const Tensor targets = ids(2, kTokens, 11, 5);
  lm.backward(in, targets, 1);
  for (int layer = 0; layer < 5; ++layer) {
    for (const char* name : {"qkv", "proj"}) {
      nn::Parameter& p =
          lm.parameter("blocks." + std::to_string(layer) + ".attn." + name + ".weight");
      double error = 0, size = 1e-3;
      for (std::int64_t i = 0; i < p.shape.numel(); i += 37) {
        double& at = p.master.data<double>()[i];
        const double before = at, step = 1e-5;
        at = before + step;
        const double above = lm.loss(in, targets);
        at = before - step;
        const double below = lm.loss(in, targets);
        at = before;
        const double numeric = (above - below) / (2 * step);
        size = std::max(size, std::abs(numeric));
        error = std::max(error, std::abs(numeric - p.grad->value.data<double>()[i]));
      }
      CAPTURE(p.path);
      CHECK(error / size < 1e-6);
    }
  }
}

TEST_CASE("the FLOPs of a mixed model are those of its layers") {
  const ModelConfig config = mixed();
  const Lm lm(config);
  double useful = 6 * static_cast<double>(lm.model->matmul_parameters()) * kTokens;
  for (int layer = 0; layer < 5; ++layer) {
    const auto& choice = config.attention[static_cast<std::size_t>(layer)];
    const attention::Cost cost = attention::find_attention(choice.kind)
                                     ->cost(models::attention_config(config, layer, nullptr),
                                            choice.options, kTokens, kTokens);
    useful += cost.useful_forward + cost.useful_backward;
  }
  CHECK(models::train_flops(*lm.model, 1, kTokens).useful == doctest::Approx(useful));
}
