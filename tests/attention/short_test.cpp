// Short embeddings: baselines.md 3.

#include <cmath>

#include <doctest/doctest.h>

#include "attention/contract.h"
#include "attention/contract/trial.h"
#include "attention/registry.h"
#include "config/yaml.h"
#include "core/error.h"
#include "method_bench.h"

using namespace fovea;
using namespace fovea::attention;
using namespace fovea::test;

namespace {

AttentionConfig model() {
  AttentionConfig config;
  config.n_embd = 64;
  config.n_head = 4;
  config.n_kv_head = 2;
  config.qk_dim = config.v_dim = 16;
  config.max_len = 32;
  return config;
}

config::Node options(const std::string& text) {
  return config::complete(config::parse(text, "a.yaml"), find_attention("short")->options,
                          "model.attention");
}

}  // namespace

TEST_CASE("short narrows queries, keys and values, or queries and keys only") {
  const AttentionSpec& spec = *find_attention("short");
  CHECK(find_attention("short_embedding") == &spec);
  const auto widths = [&](const std::string& text) {
    std::vector<int> out;
    for (const ProjectionSpec& p : spec.projections(model(), options(text)))
      out.insert(out.end(), {p.heads, p.width});
    return out;
  };
  CHECK(widths("dim: 8") == std::vector<int>{4, 8, 2, 8, 2, 8});
  CHECK(widths("{dim: 8, mode: qk_only}") == std::vector<int>{4, 8, 2, 8, 2, 16});
}

TEST_CASE("short asks for its width, which is at most the model's") {
  const AttentionSpec& spec = *find_attention("short");
  CHECK_THROWS_WITH_AS(spec.projections(model(), options("{}")),
                       "a.yaml:1:1: model.attention.dim is missing: it is the width of a head",
                       ConfigError);
  CHECK_THROWS_AS(make_attention(spec, model(), config::parse("{}", "a.yaml")), ConfigError);
  CHECK_THROWS_WITH_AS(
      spec.projections(model(), options("dim: 17")),
      "a.yaml:1:6: model.attention.dim is 17, but must be at most the head width (16)",
      ConfigError);
}

TEST_CASE("short of the model's width has the bits of standard") {
  MethodBench narrow("short", model(), "dim: 16"), exact("standard", model(), "");
  const AttentionInput in = narrow.tokens(2, 70);
  const AttentionOutput a = narrow.forward(in), b = exact.forward(in);
  CHECK(a.o.value().values() == b.o.value().values());
  CHECK(a.lse.value().values() == b.lse.value().values());
}

TEST_CASE("the contract tries short with heads narrower than the model's") {
  const AttentionSpec& spec = *find_attention("short");
  const contract::Trial trial{.spec = &spec, .options = options("{dim: 4, mode: qk_only}")};
  CHECK(trial.qk_dim == 8);
  const contract::Tokens tokens = contract::draw_tokens(trial);
  CHECK(tokens.q.size(3) == 4);
  CHECK(tokens.v.size(3) == 8);
  CHECK(options(std::string(spec.example)).get_int("dim") < trial.qk_dim);
}

TEST_CASE("the scale is that of the narrow width") {
  // Queries and keys are unit vectors: equal ones score 1 / sqrt(X), others 0.
  AttentionConfig config = model();
  config.causal = false;
  config.n_head = config.n_kv_head = 1;
  config.qk_dim = config.v_dim = 4;
  MethodBench bench("short", config, "dim: 4");
  AttentionInput in;
  std::vector<double> unit(16, 0.0);
  for (std::size_t i = 0; i < 4; ++i)
    unit[5 * i] = 1;
  in.q = in.k = in.v = Var(Tensor::from(unit, {1, 1, 4, 4}, DType::f32));
  const std::vector<double> o = bench.forward(in).o.value().values();
  const double mine = std::exp(0.5) / (std::exp(0.5) + 3);
  for (std::size_t i = 0; i < 16; ++i)
    CHECK(std::fabs(o[i] - (i % 5 == 0 ? mine : (1 - mine) / 3)) < 1e-6);
}

TEST_CASE("the cost of short is that of its narrow heads") {
  const AttentionSpec& spec = *find_attention("short");
  const double dense = find_attention("standard")
                           ->cost(model(), config::parse("kernel: tiled", "test"), 128, 128)
                           .useful_forward;
  CHECK(spec.cost(model(), options("dim: 8"), 128, 128).useful_forward == dense / 2);
  CHECK(spec.cost(model(), options("{dim: 8, mode: qk_only}"), 128, 128).useful_forward ==
        dense * 0.75);
}
