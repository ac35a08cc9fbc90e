// What is special about SPA: spa.md 5.1, 5.2.

#include <algorithm>
#include <cmath>

#include "attention/spa/settings.h"
#include "core/error.h"
#include "spa_bench.h"

using namespace fovea;
using namespace fovea::attention;
using namespace fovea::test;

namespace {

Values start_s(std::int64_t count = 32) {
  Values s = drawn_values("S", count);
  for (double& x : s)
    x *= 0.5;
  return s;
}

SpaCase given(const std::string& options =
                  "{pattern: given, proj_dim: 4, score_scale: value, "
                  "scale_value: 0.4}") {
  SpaCase c;
  c.options = options;
  c.parameters["S"] = start_s();
  return c;
}

std::string refusal(const std::string& options, AttentionConfig config = SpaCase().config) {
  try {
    make_attention(*find_attention("spa"), config, config::parse(options, "a.yaml"));
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

double setting_scale(const std::string& options) {
  const AttentionSpec& spec = *find_attention("spa");
  const config::Node node =
      config::complete(config::parse(options, "a.yaml"), spec.options, "model.attention");
  return spa::read_settings(SpaCase().config, node).scale;
}

}  // namespace

TEST_CASE("the worked example of the specification: outputs and every gradient") {
  SpaCase c;
  c.config.n_head = c.config.n_kv_head = 1;
  c.config.qk_dim = 4;
  c.config.v_dim = 2;
  c.config.causal = false;
  c.batch = 1;
  c.tokens = 2;
  c.options = "{pattern: given, proj_dim: 2}";
  c.parameters["S"] = {1, 0, 0, 1, 1, 0, 0, -1};
  c.inputs = {{"q", {1, 0, 2, -1, 0, 1, 1, 1}},
              {"k", {1, 1, 0, 0, 0, -1, 2, 1}},
              {"v", {1, 0, 0, 1}},
              {"do", {1, 0, 0, 2}}};
  const Named found = run(c);
  CHECK(worst(found.at("o"), {0.5, 0.5, 0.330238, 0.669762}) < 1e-6);
  CHECK(loss_of(c, found) == doctest::Approx(1.839523).epsilon(1e-6));
  CHECK(worst(found.at("v"), {0.5, 0.660477, 0.5, 1.339523}) < 1e-6);
  CHECK(worst(found.at("q"), {-0.176777, 0.530330, -0.176777, -0.530330, 0.312797, -0.938392,
                              0.312797, 0.938392}) < 1e-6);
  CHECK(worst(found.at("k"), {0.217533, 0.176777, 0.217533, -0.176777, -0.217533, -0.176777,
                              -0.217533, 0.176777}) < 1e-6);
  // With the term of K; that of Q alone begins with -0.176777.
  CHECK(worst(found.at("S"), {0.040756, 0.707107, 0.747863, -0.584838, -0.475822, -0.231285,
                              0.272041, -1.645498}) < 1e-6);
  CHECK(gradient_error(c, "S", c.parameters["S"]) < 1e-6);
}

TEST_CASE("S = I at full width is standard attention, bit for bit") {
  for (const Precision precision : {Precision::fp64, Precision::fp32, Precision::bf16_mixed}) {
    for (const bool grouped : {false, true}) {
      SpaCase c;
      c.precision = precision;
      c.tokens = 70;
      if (grouped) c.config.n_head = 4;
      c.options = "{pattern: identity, proj_dim: 8, score_scale: inv_sqrt_dk}";
      SpaCase dense = c;
      dense.kind = "standard";
      dense.options = "{}";
      const Named found = run(c), expected = run(dense);
      for (const char* name : {"o", "lse", "q", "k", "v"})
        CHECK(worst(found.at(name), expected.at(name)) == 0);
    }
  }
}

TEST_CASE("S R with R orthogonal, -S, and S with its columns in another order change nothing") {
  const SpaCase c = given();
  const Named expected = run(c);
  const double turn = std::cos(0.7), tilt = std::sin(0.7);
  const Values rotation = {turn, -tilt, 0, 0, tilt, turn, 0, 0, 0, 0, 0, 1, 0, 0, -1, 0};
  Values negative(16), order(16);
  for (std::size_t i = 0; i < 4; ++i) {
    negative[5 * i] = -1;
    order[4 * i + (i + 1) % 4] = 1;
  }
  for (const Values& r : {rotation, negative, order}) {
    SpaCase turned = c;
    turned.parameters["S"] = times(c.parameters.at("S"), r, 4, 4);
    const Named found = run(turned);
    for (const char* name : {"o", "lse", "q", "k", "v"})
      CHECK(worst(found.at(name), expected.at(name)) < 1e-12);
    // dS of S R is dS R.
    CHECK(worst(found.at("S"), times(expected.at("S"), r, 4, 4)) < 1e-12);
  }
}

TEST_CASE("c S is a scale of c^2, and empty columns change nothing if the scale is held") {
  const SpaCase c = given();
  SpaCase grown = c, scaled = c, padded = c;
  for (double& x : grown.parameters["S"])
    x *= 3;
  scaled.options = "{pattern: given, proj_dim: 4, score_scale: value, scale_value: 3.6}";
  CHECK(worst(run(grown).at("o"), run(scaled).at("o")) < 1e-12);
  padded.options = "{pattern: given, proj_dim: 6, score_scale: value, scale_value: 0.4}";
  Values pad(24);
  for (std::size_t i = 0; i < 4; ++i)
    pad[6 * i + i] = 1;
  padded.parameters["S"] = times(c.parameters.at("S"), pad, 4, 6);
  CHECK(worst(run(padded).at("o"), run(c).at("o")) < 1e-12);
  padded.options = "{pattern: given, proj_dim: 6}";  // 1 / sqrt(6) instead of 1 / sqrt(4)
  CHECK(worst(run(padded).at("o"), run(given("{pattern: given, proj_dim: 4}")).at("o")) > 1e-3);
}

TEST_CASE("equal matrices for every head are one for the layer, whose gradient is their sum") {
  for (const int kv_heads : {4, 2}) {
    SpaCase layer = given();
    layer.config.n_head = 4;
    layer.config.n_kv_head = kv_heads;
    SpaCase heads = layer;
    heads.options =
        "{pattern: given, proj_dim: 4, proj_scope: head, score_scale: value, "
        "scale_value: 0.4}";
    Values& all = heads.parameters["S"];
    for (int h = 1; h < kv_heads; ++h)
      all.insert(all.end(), layer.parameters["S"].begin(), layer.parameters["S"].end());
    const Named one = run(layer), each = run(heads);
    for (const char* name : {"o", "lse", "q", "k", "v"})
      CHECK(worst(each.at(name), one.at(name)) < 1e-13);
    Values sum(32);
    for (std::size_t i = 0; i < each.at("S").size(); ++i)
      sum[i % 32] += each.at("S")[i];
    CHECK(worst(sum, one.at("S")) < 1e-12);
  }
}

TEST_CASE("a head with fewer columns has empty ones, at the scale of its own width") {
  SpaCase narrow;
  narrow.options = "{proj_scope: head, proj_dims: [4, 2], s: 1}";
  const Named found = run(narrow);
  // One head alone, 2 or 4 wide, drawn under the same names.
  for (const int head : {0, 1}) {
    SpaCase alone = narrow;
    alone.options = cat("{proj_scope: head, proj_dim: ", head == 0 ? 4 : 2, ", s: 1}");
    const Named expected = run(alone);
    for (const char* name : {"o", "q", "k", "v"}) {
      for (std::size_t i = 0; i < 288; ++i) {
        if (i / 72 % 2 == static_cast<std::size_t>(head))
          CHECK(found.at(name)[i] == doctest::Approx(expected.at(name)[i]).epsilon(1e-12));
      }
    }
  }
  CHECK(refusal("{proj_dims: [4, 2]}").find("proj_scope head") != std::string::npos);
  CHECK(refusal("{proj_scope: head, proj_dims: [4]}").find("2 key/value heads") !=
        std::string::npos);
}

TEST_CASE("scope model is scope head where S is block diagonal") {
  SpaCase heads = given("{pattern: given, proj_dim: 3, proj_scope: head}"), model = heads;
  heads.parameters["S"] = drawn_values("S", 48);  // [2,8,3]
  model.options = "{pattern: given, proj_dim: 6, proj_scope: model}";
  Values& whole = model.parameters["S"];  // [16,6]
  whole.assign(96, 0);
  for (std::size_t i = 0; i < 48; ++i)
    whole[(i / 24 * 8 + i % 24 / 3) * 6 + i / 24 * 3 + i % 3] = heads.parameters["S"][i];
  const Named found = run(model), expected = run(heads);
  for (const char* name : {"o", "lse", "q", "k", "v"})
    CHECK(worst(found.at(name), expected.at(name)) < 1e-12);
}

TEST_CASE("scope single is one head of the whole width") {
  SpaCase single = given("{pattern: given, proj_dim: 5, proj_scope: single}"), one = single;
  single.parameters["S"] = one.parameters["S"] = drawn_values("S", 80);  // [16,5]
  one.options = "{pattern: given, proj_dim: 5}";
  one.config.n_head = one.config.n_kv_head = 1;
  one.config.qk_dim = one.config.v_dim = 16;
  // [B,2,N,8] of the heads as [B,1,N,16].
  const auto merged = [&](const Values& x) {
    Values out(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::size_t b = i / 144, h = i / 72 % 2, n = i / 8 % 9;
      out[b * 144 + n * 16 + h * 8 + i % 8] = x[i];
    }
    return out;
  };
  for (const char* name : {"q", "k", "v", "do"})
    one.inputs[name] = merged(drawn_values(name, 288));
  const Named found = run(single), expected = run(one);
  for (const char* name : {"o", "q", "k", "v"})
    CHECK(worst(merged(found.at(name)), expected.at(name)) < 1e-12);
  CHECK(worst(found.at("lse"), expected.at("lse")) < 1e-12);
  CHECK(worst(found.at("S"), expected.at("S")) < 1e-12);
}

TEST_CASE("scales are those of the specification") {
  const auto root = [](double x) { return 1 / std::sqrt(x); };
  CHECK(setting_scale("{proj_dim: 4, s: 1}") == root(4));
  CHECK(setting_scale("{proj_dim: 4, s: 1, score_scale: inv_sqrt_dk}") == root(8));
  CHECK(setting_scale("{proj_dim: 4, s: 1, score_scale: value, scale_value: 0.25}") == 0.25);
  CHECK(setting_scale("{proj_dim: 4, s: 1, proj_scope: model}") == root(2));  // a head's own
  CHECK(setting_scale("{proj_dim: 4, s: 1, proj_scope: single}") == root(4));
  CHECK(setting_scale("{proj_dim: 4, proj_scope: single, score_scale: inv_sqrt_dk}") == root(16));
}

TEST_CASE("a sample without keys gives nothing and gets no gradient, also through S") {
  SpaCase c = given();
  c.batch = 2;
  const std::vector<double> valid = {1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  c.key_valid = Tensor::from(valid, {2, 9}, DType::u8);
  const Named both = run(c);
  for (std::size_t i = 144; i < 288; ++i) {
    CHECK(both.at("o")[i] == 0);
    CHECK(both.at("q")[i] == 0);
  }
  SpaCase moved = c;
  for (const char* name : {"q", "k"}) {
    moved.inputs[name] = drawn_values(name, 288);
    for (std::size_t i = 0; i < 288; ++i) {
      if (i >= 144 || i % 72 >= 48) moved.inputs[name][i] = 7;
    }
  }
  CHECK(worst(run(moved).at("S"), both.at("S")) == 0);
}

TEST_CASE("what does not go together is refused with place and key") {
  AttentionConfig grouped = SpaCase().config;
  grouped.n_head = 4;
  CHECK(refusal("proj_scope: model", grouped).find("grouped heads") != std::string::npos);
  CHECK(refusal("proj_scope: single", grouped).find("proj_scope model and single") !=
        std::string::npos);
  CHECK(refusal("{proj_dim: 5, proj_scope: model}").find("a.yaml:1:12: model.attention.proj_dim") ==
        0);
  CHECK(
      refusal("{pattern: block, proj_dim: 4}").find("model.attention.b_c is 8, but must divide") !=
      std::string::npos);
  CHECK(refusal("{score_scale: value}").find("scale_value") != std::string::npos);
  CHECK(refusal("{gate: logit}").find("learned mask") != std::string::npos);
  CHECK(refusal("{pattern: learn, t0: 20, t1: 10}").find("must not lie before t0 (20)") !=
        std::string::npos);
  CHECK(refusal("{pattern: learn, proj_dim: 4, min_per_row: 5}").find("only 4 columns") !=
        std::string::npos);
  CHECK(refusal("{pattern: learn, proj_dim: 4, min_per_row: 4}").empty());
  CHECK(refusal("{gate: score, proj_scope: single}").find("proj_scope") != std::string::npos);
  CHECK(refusal("{pattern: identity, proj_dim: 4}").find("proj_dim") != std::string::npos);
  CHECK(refusal("{proj_dim: 16}").empty());  // over-complete: a warning
}
