// SPA's S inside a layer: folded into the projections where that is exact, else applied to tokens.

#include <cmath>

#include <doctest/doctest.h>

#include "autograd/ops/elementwise.h"
#include "autograd/ops/linear.h"
#include "config/yaml.h"
#include "models/generate.h"
#include "tiny.h"

using namespace fovea;
using namespace fovea::test;
using models::MultiHeadAttention;
using models::MultiHeadConfig;

namespace {

using Values = std::vector<double>;

MultiHeadConfig shape(bool grouped = false) {
  MultiHeadConfig config;
  config.attention = {.n_embd = 16,
                      .n_head = 4,
                      .n_kv_head = grouped ? 2 : 4,
                      .qk_dim = 8,
                      .v_dim = 8,
                      .max_len = 32};
  config.init_std = config.proj_std = 0.3;
  return config;
}

config::Node options(const std::string& text) {
  return config::complete(config::parse(text, "test"), attention::find_attention("spa")->options,
                          "model.attention");
}

// One layer with gradients, and what a forward and backward pass make.
struct Layer : World {
  Layer(const MultiHeadConfig& config, const std::string& text,
        Precision precision = Precision::fp64)
      : World(precision),
        attention(config, *attention::find_attention("spa"), options(text)),
        heads(config.attention) {
    attention.set_path("attn");
    store.emplace(ctx, attention, optim::StoreMode::train);
    grads = Tensor::empty({store->elements()}, state_dtype(precision), kCpu);
    store->bind_gradients(grads);
    ctx.training = true;
    for (nn::Parameter* p : attention.parameters()) {
      // Biases start at zero and gates at none: move everything.
      Values values = p->master.values();
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] += 0.1 * std::sin(static_cast<double>(7 * i + p->path.size()));
      copy_host(p->master.view(), Tensor::from(values, p->shape, DType::f64).view());
    }
    store->refresh(ctx);
    attention.before_step(ctx, {.step = 0, .max_steps = 10});
  }

  std::map<std::string, Values> run(const std::function<Var(const Var&)>& forward) {
    copy_host(grads.view(), Tensor::from(Values(static_cast<std::size_t>(grads.numel())),
                                         grads.shape(), DType::f64)
                                .view());
    Tape tape;
    ctx.tape = &tape;
    const Var x = leaf(input("x"));
    const Var y = forward(x);
    std::map<std::string, Values> out{{"y", y.value().values()}};
    tape.backward(ctx, y, input("dy"));
    ctx.tape = nullptr;
    out["x"] = x.grad()->value.values();
    for (nn::Parameter* p : attention.parameters())
      out[p->path] = p->grad->value.values();
    return out;
  }
  std::map<std::string, Values> through_layer() {
    return run([&](const Var& x) { return attention.forward(ctx, x, {}).y; });
  }
  // The plain product, then the method with the map it applies itself.
  std::map<std::string, Values> unfolded() {
    return run([&](const Var& x) {
      const Var packed = linear(ctx, x, of("attn.qkv.weight"), of("attn.qkv.bias"));
      const auto part = [](int count, int width) { return HeadPart{count, width}; };
      const std::vector<Var> parts =
          split_heads(ctx, packed,
                      {part(heads.n_head, heads.qk_dim), part(heads.n_kv_head, heads.qk_dim),
                       part(heads.n_kv_head, heads.v_dim)});
      attention::AttentionInput in;
      in.q = parts[0];
      in.k = parts[1];
      in.v = parts[2];
      const Var o = attention.method().forward(ctx, in).o;
      return linear(ctx, merge_heads(ctx, o), of("attn.proj.weight"), of("attn.proj.bias"));
    });
  }
  Var of(const std::string& path) {
    for (nn::Parameter* p : attention.parameters()) {
      if (p->path == path) return p->var();
    }
    throw ConfigError("no parameter " + path);
  }
  Tensor input(const std::string& name) const {
    const NamedStream numbers(3, name);
    Values values(2 * 9 * 16);
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = numbers.normal(i);
    return Tensor::from(values, {2, 9, 16}, ctx.compute());
  }

  MultiHeadAttention attention;
  attention::AttentionConfig heads;
  std::optional<optim::ParameterStore> store;
  Tensor grads;
};

double distance(const std::map<std::string, Values>& a, const std::map<std::string, Values>& b) {
  double out = 0;
  for (const auto& [name, values] : a) {
    double size = 1e-2, error = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      size = std::max(size, std::fabs(b.at(name)[i]));
      error = std::max(error, std::fabs(values[i] - b.at(name)[i]));
    }
    out = std::max(out, error / size);
  }
  return out;
}

models::ModelConfig lm(const std::string& text, models::ModelConfig config = gpt2_style()) {
  for (auto& choice : config.attention)
    choice = {"spa", options(text), nullptr};
  return config;
}

const std::vector<std::string> kFoldable = {
    "{proj_dim: 4, s: 2}",
    "{pattern: given, proj_dim: 3}",
    "{pattern: given, proj_dim: 4, proj_scope: head}",
    "{pattern: given, proj_dim: 4, gate: score}",
    "{pattern: given, proj_dim: 4, gate: proj}",
    "{pattern: given, proj_dim: 4, gate: blend}",
    "{pattern: given, proj_dim: 4, gate: output}",
    "{pattern: learn, proj_dim: 4}",
    "{pattern: learn, proj_dim: 4, learn_mode: concrete, gate: logit}",
    "{pattern: learn, proj_dim: 4, learn_mode: hard_concrete, proj_scope: head}"};

}  // namespace

TEST_CASE("folded equals unfolded to rounding: outputs and every gradient, that of S included") {
  for (const std::string& text : kFoldable) {
    for (const bool grouped : {false, true}) {
      CAPTURE(text);
      Layer layer(shape(grouped), text);
      CHECK(layer.attention.folds());
      CHECK(distance(layer.through_layer(), layer.unfolded()) < 1e-12);
    }
  }
  for (const char* scope : {"model", "single"}) {
    Layer layer(shape(), std::string("{pattern: given, proj_dim: 8, proj_scope: ") + scope + "}");
    CHECK(layer.attention.folds());
    CHECK(distance(layer.through_layer(), layer.unfolded()) < 1e-12);
  }
}

TEST_CASE("folding keeps gradients of 16-bit weights in f32, and rounds no more than not folding") {
  for (const Precision precision : {Precision::bf16_mixed, Precision::fp16_mixed}) {
    Layer exact(shape(), "{pattern: given, proj_dim: 4}"),
        narrow(shape(), "{pattern: given, proj_dim: 4}", precision);
    const auto expected = exact.unfolded();
    const double folded = distance(narrow.through_layer(), expected),
                 unfolded = distance(narrow.unfolded(), expected);
    CHECK(folded < 2e-2);
    CHECK(folded <= 1.5 * unfolded);
  }
}

TEST_CASE("S = I of a layer is standard attention, bit for bit") {
  const std::string text = "{pattern: identity, proj_dim: 6, score_scale: inv_sqrt_dk}";
  for (const Precision precision : {Precision::fp32, Precision::bf16_mixed}) {
    Lm with_s(lm(text), precision), standard(gpt2_style(), precision);
    with_s.model->before_step(with_s.ctx, {});
    const Tensor tokens = ids(2, 16, 11), targets = ids(2, 16, 11, 5);
    CHECK(with_s.backward({.ids = tokens}, targets, 32) ==
          standard.backward({.ids = tokens}, targets, 32));
    for (nn::Parameter* p : standard.model->parameters()) {
      CAPTURE(p->path);
      CHECK(p->grad->value.values() == with_s.parameter(p->path).grad->value.values());
    }
  }
}

TEST_CASE("RoPE before S and norms of q and k forbid folding; S is then applied behind them") {
  MultiHeadConfig rotated = shape();
  rotated.attention.position = attention::Position::rope;
  CHECK(Layer(rotated, "{pattern: given, proj_dim: 4}").attention.folds());
  Layer before(rotated, "{pattern: given, proj_dim: 4, rope_site: before_proj}");
  CHECK_FALSE(before.attention.folds());
  CHECK(before.attention.map_text().find("RoPE stands between") != std::string::npos);
  MultiHeadConfig normed = shape();
  normed.qk_norm = true;
  Layer with_norm(normed, "{pattern: given, proj_dim: 4}");
  CHECK_FALSE(with_norm.attention.folds());
  CHECK(with_norm.attention.map_text().find("model.qk_norm stands between") != std::string::npos);
  CHECK(with_norm.attention.matmul_parameters() == 16 * 96 + 16 * 32);
  CHECK(Layer(shape(), "{pattern: given, proj_dim: 4}").attention.matmul_parameters() ==
        16 * (16 + 16 + 32) + 16 * 32);
  // The same numbers as rotating, projecting and attending by hand.
  const auto by_hand = before.run([&](const Var& x) {
    const std::vector<Var> parts = split_heads(
        before.ctx, linear(before.ctx, x, before.of("attn.qkv.weight"), before.of("attn.qkv.bias")),
        {{4, 8}, {4, 8}, {4, 8}});
    attention::AttentionInput in;
    in.q = rope(before.ctx, parts[0], rotated.rope, {});
    in.k = rope(before.ctx, parts[1], rotated.rope, {});
    in.v = parts[2];
    const Var o = before.attention.method().forward(before.ctx, in).o;
    return linear(before.ctx, merge_heads(before.ctx, o), before.of("attn.proj.weight"),
                  before.of("attn.proj.bias"));
  });
  CHECK(distance(before.through_layer(), by_hand) < 1e-12);
}

TEST_CASE("what a watcher gets unmapped is what the method maps itself") {
  MultiHeadConfig rotated = shape();
  rotated.attention.position = attention::Position::rope;
  MultiHeadConfig normed = shape(true);
  normed.qk_norm = true;
  for (const auto& [config, site] :
       {std::pair(shape(true), "after_proj"), {rotated, "before_proj"}, {normed, "after_proj"}}) {
    Layer layer(config, std::string("{pattern: given, proj_dim: 4, rope_site: ") + site + "}");
    Var seen;
    const auto whole = layer.run([&](const Var& x) {
      layer.attention.watch([&](Ctx&, const Var& y, const models::ForwardInput&) { seen = y; });
      return layer.attention.forward(layer.ctx, x, {}).y;
    });
    layer.attention.watch(nullptr);
    const auto by_method = layer.run([&](const Var& x) {
      CHECK(seen.value().values() == x.value().values());
      const attention::AttentionInput in = layer.attention.unmapped(layer.ctx, x, {});
      CHECK_FALSE(in.mapped);
      CHECK(in.q.value().size(3) == 8);
      const Var o = layer.attention.method().forward(layer.ctx, in).o;
      return linear(layer.ctx, merge_heads(layer.ctx, o), layer.of("attn.proj.weight"),
                    layer.of("attn.proj.bias"));
    });
    CHECK(distance(by_method, whole) < 1e-12);
  }
  // A rotation that comes behind S has not happened yet.
  Layer behind(rotated, "{pattern: given, proj_dim: 4}"),
      never(shape(), "{pattern: given, proj_dim: 4}");
  const Var x(behind.input("x"));
  CHECK(behind.attention.unmapped(behind.ctx, x, {}).q.value().values() ==
        never.attention.unmapped(never.ctx, x, {}).q.value().values());
}

TEST_CASE("rotation behind S needs an even width") {
  MultiHeadConfig rotated = shape();
  rotated.attention.position = attention::Position::rope;
  CHECK_THROWS_AS(Layer(rotated, "{pattern: given, proj_dim: 3}"), ConfigError);
  CHECK_NOTHROW(Layer(rotated, "{pattern: given, proj_dim: 3, rope_site: before_proj}"));
}

TEST_CASE("gradients of whole models with SPA are derivatives") {
  for (const std::string& text :
       {std::string("{pattern: given, proj_dim: 4}"), std::string("{pattern: given, proj_dim: 4, "
                                                                  "gate: output}")}) {
    Lm model(lm(text), Precision::fp64);
    const Tensor tokens = ids(2, 9, 11), targets = ids(2, 9, 11, 5);
    model.backward({.ids = tokens}, targets, 1);
    for (const char* path :
         {"blocks.0.attn.method.S", "blocks.1.attn.qkv.weight", "blocks.0.attn.qkv.bias"}) {
      nn::Parameter& p = model.parameter(path);
      const Values gradient = p.grad->value.values();
      for (const std::int64_t i : {std::int64_t{0}, std::int64_t{5}, p.shape.numel() / 2}) {
        double& at = p.master.data<double>()[i];
        const double start = at;
        at = start + 1e-5;
        const double above = model.loss({.ids = tokens}, targets);
        at = start - 1e-5;
        const double below = model.loss({.ids = tokens}, targets);
        at = start;
        CHECK((above - below) / 2e-5 ==
              doctest::Approx(gradient[static_cast<std::size_t>(i)]).epsilon(1e-6).scale(0.01));
      }
    }
  }
}

TEST_CASE("recomputing a block changes no bit, learned masks included") {
  const std::string text = "{pattern: learn, proj_dim: 4, gate: output}";
  Lm plain(lm(text)), again(lm(text));
  const Tensor tokens = ids(2, 16, 11), targets = ids(2, 16, 11, 5);
  plain.model->before_step(plain.ctx, {.step = 0, .max_steps = 10});
  again.model->before_step(again.ctx, {.step = 0, .max_steps = 10});
  CHECK(plain.backward({.ids = tokens}, targets, 32) ==
        again.backward({.ids = tokens, .recompute = true}, targets, 32));
  CHECK(plain.grads.values() == again.grads.values());
}

TEST_CASE("decoding keeps narrow keys and generates the same text as full passes") {
  models::ModelConfig rotated = llama_style();
  rotated.qk_norm = false;
  const std::vector<std::vector<std::int32_t>> prompts = {{1, 2, 3}, {4, 5, 6}};
  for (const std::string& text : kFoldable) {
    for (const models::ModelConfig& base : {gpt2_style(), rotated, llama_style()}) {
      if (base.n_kv_head == 2 && text.find("proj_dim: 3") != std::string::npos) continue;
      CAPTURE(text);
      CAPTURE(base.qk_norm);
      Lm model(lm(text, base));
      model.model->before_step(model.ctx, {.step = 0, .max_steps = 10});
      CHECK(models::greedy(model.ctx, *model.model, prompts, 8) ==
            models::greedy(model.ctx, *model.model, prompts, 8, models::Cache::none));
    }
  }
  Lm narrow(lm("{proj_dim: 4, s: 2}")), wide(gpt2_style());
  const auto bytes = [](Lm& model) {
    return model.model->start(model.ctx, 1, 8)->layers[0]->bytes_per_token();
  };
  CHECK(bytes(narrow) * (6 + 6) == bytes(wide) * (4 + 6));  // (d' + d_v) / (d_k + d_v)
}
