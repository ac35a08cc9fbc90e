// What a method is given, seen through a method that only looks.

#include "models/multi_head_attention.h"

#include <cmath>

#include <doctest/doctest.h>

#include "config/yaml.h"
#include "core/error.h"
#include "models/block.h"
#include "tiny.h"

using namespace fovea;
using namespace fovea::test;
using attention::AttentionConfig;
using attention::AttentionInput;
using attention::ProjectionSpec;
using models::MultiHeadAttention;
using models::MultiHeadConfig;

namespace {

// Returns v as the output and the sum of q as its auxiliary term, and keeps what it was given.
struct Spy final : attention::Attention {
  AttentionInput seen;
  attention::AttentionOutput forward(Ctx& ctx, const AttentionInput& in) override {
    seen = in;
    attention::AttentionOutput out;
    out.o = in.v;
    out.aux = sum(ctx, in.q);
    return out;
  }
  std::string kernel() const override { return "spy"; }
};

std::unique_ptr<attention::Attention> make_spy(const AttentionConfig&, const config::Node&) {
  return std::make_unique<Spy>();
}

// No keys of its own, heads of another width, and both sides of the rotation.
std::vector<ProjectionSpec> own_list(const AttentionConfig& config, const config::Node&) {
  return {{.name = "v", .heads = config.n_head, .width = config.v_dim},
          {.name = "q_unrotated"},
          {.name = "q", .heads = 3, .width = 4, .rope = true, .qk_norm = true}};
}

std::vector<ProjectionSpec> unknown_list(const AttentionConfig&, const config::Node&) {
  return {{.name = "keys", .heads = 1, .width = 4}};
}

attention::AttentionSpec spy_spec() {
  attention::AttentionSpec spec;
  spec.name = "spy";
  spec.summary = "Looks at its input.";
  spec.make = make_spy;
  return spec;
}

MultiHeadConfig small() {
  MultiHeadConfig config;
  config.attention = {.n_embd = 12,
                      .n_head = 4,
                      .n_kv_head = 2,
                      .qk_dim = 6,
                      .v_dim = 6,
                      .max_len = 8,
                      .position = attention::Position::rope};
  config.init_std = 0.5;
  return config;
}

struct Layer : World {
  Layer(const MultiHeadConfig& config, const attention::AttentionSpec& spec,
        const config::Node& options = {})
      : World(Precision::fp64), attention(config, spec, options) {
    attention.set_path("");
    store.emplace(ctx, attention, optim::StoreMode::evaluate);
  }
  const AttentionInput& seen() { return static_cast<Spy&>(attention.method()).seen; }
  std::vector<double> values(const std::string& path) {
    for (nn::Parameter* p : attention.parameters()) {
      if (p->path == path) return p->master.values();
    }
    throw ConfigError("no parameter " + path);
  }
  MultiHeadAttention attention;
  std::optional<optim::ParameterStore> store;
};

Var input() {
  std::vector<double> values(24);
  for (std::size_t i = 0; i < 24; ++i)
    values[i] = std::sin(static_cast<double>(i * i));
  return Var(Tensor::from(values, {1, 2, 12}, DType::f64));
}

}  // namespace

TEST_CASE("a method's own list of projections lies in one product, in its order and head-major") {
  attention::AttentionSpec spec = spy_spec();
  spec.projections = own_list;
  MultiHeadConfig config = small();
  config.bias = false;
  Layer layer(config, spec);
  const Var x = input();
  layer.attention.forward(layer.ctx, x, {});
  const AttentionInput& seen = layer.seen();
  CHECK(seen.v.shape() == Shape{1, 4, 2, 6});
  CHECK(seen.q.shape() == Shape{1, 3, 2, 4});
  CHECK_FALSE(seen.k.defined());
  CHECK_FALSE(seen.k_unrotated.defined());
  CHECK(seen.x.value().view().data == x.view().data);

  const std::vector<double> w = layer.values("qkv.weight"), xs = x.value().values();
  REQUIRE(w.size() == (24 + 12) * 12);
  const auto product = [&](std::size_t row, std::size_t token) {
    double y = 0;
    for (std::size_t i = 0; i < 12; ++i)
      y += w[row * 12 + i] * xs[token * 12 + i];
    return y;
  };
  const std::vector<double> v = seen.v.value().values(), raw = seen.q_unrotated.value().values();
  // Head 2, token 1, feature 5 of v; head 1, token 0, feature 3 of q.
  CHECK(v[(2 * 2 + 1) * 6 + 5] == doctest::Approx(product(2 * 6 + 5, 1)).epsilon(1e-12));
  CHECK(raw[(1 * 2 + 0) * 4 + 3] == doctest::Approx(product(24 + 1 * 4 + 3, 0)).epsilon(1e-12));
}

TEST_CASE("rotation leaves position 0 as it is and the values alone, and keeps lengths") {
  attention::AttentionSpec spec = spy_spec();
  spec.projections = own_list;
  Layer layer(small(), spec);
  layer.attention.forward(layer.ctx, input(), {});
  const std::vector<double> q = layer.seen().q.value().values(),
                            raw = layer.seen().q_unrotated.value().values();
  for (std::size_t head = 0; head < 3; ++head) {
    double before = 0, after = 0, moved = 0;
    for (std::size_t i = 0; i < 4; ++i) {
      CHECK(q[head * 8 + i] == raw[head * 8 + i]);
      const double rotated = q[head * 8 + 4 + i], plain = raw[head * 8 + 4 + i];
      before += plain * plain, after += rotated * rotated, moved += std::abs(rotated - plain);
    }
    CHECK(after == doctest::Approx(before).epsilon(1e-12));
    CHECK(moved > 1e-3);
  }
}

TEST_CASE("without rotary positions nothing rotates") {
  attention::AttentionSpec spec = spy_spec();
  spec.projections = own_list;
  MultiHeadConfig config = small();
  config.attention.position = attention::Position::learned;
  Layer layer(config, spec);
  layer.attention.forward(layer.ctx, input(), {});
  CHECK(layer.seen().q.value().values() == layer.seen().q_unrotated.value().values());
}

TEST_CASE("qk-norm normalises every head of the projections that allow it, before rotation") {
  MultiHeadConfig config = small();
  config.attention.n_kv_head = 4;
  config.qk_norm = true;
  config.norm_eps = 0;
  Layer layer(config, spy_spec());
  layer.attention.forward(layer.ctx, input(), {});
  std::vector<std::string> paths;
  layer.attention.each_parameter(
      [&](const std::string& path, nn::Parameter&) { paths.push_back(path); });
  CHECK(paths == std::vector<std::string>{"q_norm.weight", "k_norm.weight", "qkv.weight",
                                          "qkv.bias", "proj.weight", "proj.bias"});
  for (const Var& x : {layer.seen().q, layer.seen().k}) {
    const std::vector<double> values = x.value().values();
    for (std::size_t head = 0; head < values.size(); head += 6) {
      double square = 0;
      for (std::size_t i = 0; i < 6; ++i)
        square += values[head + i] * values[head + i];
      CHECK(square == doctest::Approx(6).epsilon(1e-9));
    }
  }
}

TEST_CASE("fewer key heads are passed on as they are") {
  Layer layer(small(), spy_spec());
  // The spy's output has the two heads of v, which the output product refuses: only its input
  // counts.
  CHECK_THROWS_AS(layer.attention.forward(layer.ctx, input(), {}), ShapeError);
  CHECK(layer.seen().q.shape() == Shape{1, 4, 2, 6});
  CHECK(layer.seen().k.shape() == Shape{1, 2, 2, 6});
}

TEST_CASE("short has 4 C H X weights around its heads where values are narrow too") {
  const attention::AttentionSpec& spec = *attention::find_attention("short");
  MultiHeadConfig config = small();
  config.attention.n_kv_head = 4;
  config.attention.position = attention::Position::none;
  const auto weights = [&](const std::string& text) {
    const config::Node options =
        config::complete(config::parse(text, "a.yaml"), spec.options, "model.attention");
    Layer layer(config, spec, options);
    CHECK(layer.attention.forward(layer.ctx, input(), {}).y.shape() == Shape{1, 2, 12});
    std::vector<std::int64_t> out;
    layer.attention.each_parameter(
        [&](const std::string&, nn::Parameter& p) { out.push_back(p.shape.numel()); });
    return out;
  };
  // qkv.weight, qkv.bias, proj.weight, proj.bias with C = 12, H = 4 and X = 2; then Dv = 6.
  CHECK(weights("dim: 2") == std::vector<std::int64_t>{3 * 12 * 8, 3 * 8, 12 * 8, 12});
  CHECK(weights("{dim: 2, mode: qk_only}") ==
        std::vector<std::int64_t>{12 * (8 + 8 + 24), 8 + 8 + 24, 12 * 24, 12});
}

TEST_CASE("a width that rotation cannot use is refused") {
  const attention::AttentionSpec& spec = *attention::find_attention("short");
  const auto refused = [&](const std::string& text, int rope_width) {
    MultiHeadConfig config = small();
    config.rope.width = rope_width;
    MultiHeadAttention(config, spec,
                       config::complete(config::parse(text, "a.yaml"), spec.options, "a"));
  };
  refused("dim: 2", 0);
  CHECK_THROWS_WITH_AS(refused("dim: 3", 0),
                       "a.yaml:1:1: the width of q of attention short is 3, but must be even: "
                       "model.position is rope",
                       ConfigError);
  CHECK_THROWS_AS(refused("dim: 2", 4), ConfigError);
}

TEST_CASE("a projection that no input is named after is refused") {
  attention::AttentionSpec spec = spy_spec();
  spec.projections = unknown_list;
  CHECK_THROWS_WITH_AS(MultiHeadAttention(small(), spec, config::Node()),
                       "attention spy: there is no projection called keys", ConfigError);
}

TEST_CASE("an auxiliary term leaves the block as an output") {
  attention::AttentionSpec spec = spy_spec();
  spec.projections = own_list;
  World world(Precision::fp64);
  models::BlockConfig config;
  config.attention = small();
  config.mlp = {.width = 12, .hidden = 8};
  models::Block block(config, spec, config::Node());
  block.set_path("");
  const optim::ParameterStore store(world.ctx, block, optim::StoreMode::evaluate);
  const models::BlockStream out = block.forward(world.ctx, {input(), {}, {}}, {});
  REQUIRE(out.aux.defined());
  const auto& seen = static_cast<Spy&>(block.attention().method()).seen;
  CHECK(out.aux.value().item() == sum(world.ctx, seen.q).value().item());
}
